"""The rules of rigid policies in plain words, from their papers and `docs/policies/`, for `plain_world`."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from tests.oracles.plain_world import Now, Plain, Rule, served

__all__ = ["ByKey", "Conservative", "Drf", "Easy", "Fifo", "Gittins", "Las", "RoundRobin", "Tiresias"]


class ByKey(Rule):
    """Preemptive, strictly by a key."""

    def __init__(self, key: Any):
        self.key = key

    def chosen(self, now: Now) -> list[Plain]:
        return served(now.jobs, self.key, now.gpus)


class Fifo(Rule):
    """Not preemptive, in order of submission; a job that does not fit is skipped, or blocks."""

    def __init__(self, skip: bool):
        self.skip = skip

    def chosen(self, now: Now) -> list[Plain]:
        if self.skip:
            return now.running + served(now.waiting, lambda job: 0, now.free)
        count, free = 0, now.free
        while count < len(now.waiting) and now.waiting[count].gpus <= free:
            free -= now.waiting[count].gpus
            count += 1
        return now.running + now.waiting[:count]


class Easy(Rule):
    """Mu'alem and Feitelson 2001, the box "EASY backfill": a shadow time, and the nodes that are extra then.
    Run times are overestimated by `factor`, or as their users did. An estimate that has run out is extended
    by the next of `corrections`.
    """

    def __init__(self, factor: int, corrections: Sequence[int] = ()):
        self.factor, self.corrections = factor, corrections

    def span(self, job: Plain) -> int:
        return job.estimate or self.factor * job.run

    def end(self, job: Plain, t: int) -> int:
        """The expected end, at second `t`, of a job that runs."""
        end, steps = job.since + self.span(job), iter(self.corrections)
        while end <= t:
            end += next(steps)
        return end

    def chosen(self, now: Now) -> list[Plain]:
        out = Fifo(skip=False).chosen(now)
        line = [job for job in now.waiting if job not in out]
        if not line:
            return out
        head, free = line[0], now.gpus - sum(job.gpus for job in out)
        ends = {job: self.end(job, now.t) if job in now.running else now.t + self.span(job) for job in out}

        def free_at(time: int) -> int:
            return free + sum(job.gpus for job, end in ends.items() if end <= time)

        shadow = min(end for end in ends.values() if free_at(end) >= head.gpus)
        extra = free_at(shadow) - head.gpus
        for job in line[1:]:
            ends_in_time = now.t + self.span(job) <= shadow
            if job.gpus <= free and (ends_in_time or job.gpus <= extra):
                out.append(job)
                free -= job.gpus
                extra -= 0 if ends_in_time else job.gpus
        return out


class Conservative(Easy):
    """The same authors: reservations on submission, made anew in the order of their starts when a job ends
    earlier or later than expected.
    """

    def __init__(self, factor: int, corrections: Sequence[int] = ()):
        super().__init__(factor, corrections)
        self.reserved: dict[Plain, int] = {}
        self.ends: dict[Plain, int] = {}

    def chosen(self, now: Now) -> list[Plain]:
        early = [job for job in now.ended if self.ends.pop(job) > now.t]
        late = [job for job in now.running if self.ends[job] <= now.t]
        self.ends |= {job: self.end(job, now.t) for job in late}
        if early or late:
            before, self.reserved = self.reserved, {}
            for job in sorted(before, key=lambda job: (before[job], job.order)):
                self.reserve(job, now)
        for job in now.came:
            self.reserve(job, now)
        out = [job for job in now.waiting if self.reserved[job] <= now.t]
        for job in out:
            del self.reserved[job]
            self.ends[job] = now.t + self.span(job)
        return now.running + out

    def reserve(self, job: Plain, now: Now) -> None:
        start, span = now.t, self.span(job)
        while full := [s for s in range(start, start + span) if self.used(s, now) + job.gpus > now.gpus]:
            start = full[-1] + 1
        self.reserved[job] = start

    def used(self, second: int, now: Now) -> int:
        stretches = [(job, now.t, self.ends[job]) for job in now.running]
        stretches += [(job, start, start + self.span(job)) for job, start in self.reserved.items()]
        return sum(job.gpus for job, start, end in stretches if start <= second < end)


class InTurns(Rule):
    """Rounds of `quantum` seconds: a turn ends with the round in which a job has run that long. Something is
    decided when jobs come or end, and at the end of a round if a job waited at a decision within it.
    """

    def __init__(self, quantum: int):
        self.quantum, self.round_ends, self.look_again = quantum, -1, -1

    def chosen(self, now: Now) -> list[Plain]:
        if not now.came and not now.ended and now.t != self.look_again:
            return now.running
        over: list[Plain] = []
        if now.t >= self.round_ends:
            self.round_ends = now.t + self.quantum
            over = [job for job in now.running if now.t - job.since >= self.quantum]
        if now.waiting:
            self.look_again = self.round_ends
        return self.divided(now, over)

    def divided(self, now: Now, over: Sequence[Plain]) -> list[Plain]:
        raise NotImplementedError


class RoundRobin(InTurns):
    def __init__(self, quantum: int):
        super().__init__(quantum)
        self.line: list[Plain] = []

    def divided(self, now: Now, over: Sequence[Plain]) -> list[Plain]:
        back = now.came + sorted(over, key=lambda job: (job.since, self.line.index(job)))
        self.line = [job for job in self.line if job not in back and job not in now.ended] + back
        return served(now.jobs, self.line.index, now.gpus)


class Las(InTurns):
    """Least attained service; of running jobs, that at the beginning of the time slice."""

    def __init__(self, quantum: int):
        super().__init__(quantum)
        self.rank: dict[Plain, Any] = {}

    def claim(self, job: Plain) -> Any:
        return job.service

    def divided(self, now: Now, over: Sequence[Plain]) -> list[Plain]:
        self.rank |= {job: self.claim(job) for job in [*over, *now.waiting]}
        return served(now.jobs, self.rank.__getitem__, now.gpus)


class Gittins(Las):
    """Greatest index first: every look ahead of a turn or more, second by second. Sizes stated or learned."""

    def __init__(self, quantum: int, sizes: Sequence[int] | None):
        super().__init__(quantum)
        self.sizes, self.learns = list(sizes or ()), sizes is None
        self.done: list[int] = []
        self.learn_at = 8

    def claim(self, job: Plain) -> tuple[float, int]:
        left, turn = (
            [size - job.service for size in self.sizes if size > job.service],
            self.quantum * job.gpus,
        )
        looks = range(turn, turn + max(left, default=-1) + 1)
        served_s = {d: sum(min(x, d) for x in left) for d in looks}
        best = max((sum(x <= d for x in left) / served_s[d] for d in looks), default=0.0)
        return -round(best, 12), job.service

    def divided(self, now: Now, over: Sequence[Plain]) -> list[Plain]:
        self.done += [job.service for job in now.ended]
        if self.learns and len(self.done) >= self.learn_at:
            self.learn_at, self.sizes, over = ceil(1.25 * self.learn_at), list(self.done), now.running
        return super().divided(now, over)


class Tiresias(Rule):
    """Discretised 2D-LAS, with the paper's PROMOTEKNOB, second by second. The queues are lists: a job joins
    the end when it comes, falls or is promoted, and those that wait go behind those that run.
    """

    def __init__(self, thresholds: Sequence[int], knob: int | None, by_start: bool = True):
        self.thresholds, self.knob, self.by_start = thresholds, knob, by_start
        self.queues: list[list[Plain]] = [[] for _ in range(len(thresholds) + 1)]
        self.service: dict[Plain, int] = {}  # since the last promotion
        self.waited: dict[Plain, int] = {}  # the same, after the first second on GPUs
        self.before: list[Plain] = []  # those that held GPUs in the last second

    def move(self, job: Plain, queue: int) -> None:
        for line in self.queues:
            line[:] = [other for other in line if other is not job]
        self.queues[queue].append(job)

    def queue(self, job: Plain) -> int:
        return next(i for i, line in enumerate(self.queues) if job in line)

    def chosen(self, now: Now) -> list[Plain]:
        for line in self.queues:
            line[:] = [job for job in line if job not in now.ended]
        for job in now.came:
            self.service[job] = self.waited[job] = 0
            self.queues[0].append(job)
        for job in sorted(now.jobs, key=lambda job: job.order):
            if job in self.before:
                self.service[job] += job.gpus
                if (queue := sum(self.service[job] >= limit for limit in self.thresholds)) > self.queue(job):
                    self.move(job, queue)
            elif self.service[job]:
                self.waited[job] += 1
                if (
                    self.knob
                    and self.queue(job)
                    and self.waited[job] * job.gpus >= self.knob * self.service[job]
                ):
                    self.service[job] = self.waited[job] = 0
                    self.move(job, 0)
        out: list[Plain] = []
        for line in self.queues:
            for job in line if self.by_start else sorted(line, key=lambda job: job.order):
                if job.gpus <= now.gpus - sum(other.gpus for other in out):
                    out.append(job)
        for line in self.queues:
            line.sort(key=lambda job: job not in out)
        self.before = out
        return out


class Drf(Rule):
    """Algorithm 1 of the paper with one resource."""

    def __init__(self, weights: Mapping[str, float]):
        self.weights = weights

    def chosen(self, now: Now) -> list[Plain]:
        out, waiting = list(now.running), list(now.waiting)
        while waiting:
            first = {job.tenant: job for job in reversed(waiting)}
            shares = {
                x: sum(job.gpus for job in out if job.tenant == x) / self.weights.get(x, 1) for x in first
            }
            job = first[min(first, key=lambda x: (shares[x], first[x].order))]
            if job.gpus > now.gpus - sum(job.gpus for job in out):
                break
            out.append(job)
            waiting.remove(job)
        return out
