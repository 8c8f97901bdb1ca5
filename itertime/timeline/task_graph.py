"""One iteration as a graph of tasks, run one by one: the timeline of a plan, and the test of the formulas.

Deliberately plain: every forward, backward, send and bucket of gradients is a task on a stream. A task starts
when its stream is free and the tasks that it waits for have ended. `predict` computes the same time without
the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from itertime.schedule import input_of, place_of, units_of
from itertime.schedule.zero_bubble import Pass, Unit

Step = tuple[str, int, int]  # "forward" or "backward", chunk, micro-batch


@dataclass(frozen=True)
class Task:
    """`seconds` of work on a stream of a stage, after the tasks named in `predecessors`; names are unique."""

    name: str
    stage: int
    stream: str
    seconds: float
    predecessors: tuple[str, ...] = ()


@dataclass
class Graph:
    """Tasks by name; each stream runs its tasks in the order in which they were added."""

    tasks: dict[str, Task] = field(default_factory=dict)

    def add(
        self, name: str, stage: int, stream: str, seconds: float, predecessors: Sequence[str] = ()
    ) -> str:
        """Adds a task and returns its name."""
        assert name not in self.tasks, name
        self.tasks[name] = Task(name, stage, stream, seconds, tuple(predecessors))
        return name

    def run(self) -> dict[str, tuple[float, float]]:
        """Start and end of every task, in seconds. Raises ValueError if tasks wait for each other in a
        circle.
        """
        streams: dict[tuple[int, str], list[Task]] = {}
        for task in self.tasks.values():
            streams.setdefault((task.stage, task.stream), []).append(task)
        times: dict[str, tuple[float, float]] = {}
        queues = [iter(queue) for queue in streams.values()]
        heads = [next(queue) for queue in queues]
        free = [0.0] * len(heads)
        # Each stream runs its tasks as far as it can before the next stream does. The order of streams has no
        # effect on times: a task starts when its stream is free and its predecessors have ended.
        while heads:
            blocked = True
            for index in range(len(heads) - 1, -1, -1):
                while all(name in times for name in heads[index].predecessors):
                    task = heads[index]
                    start = max([free[index], *(times[name][1] for name in task.predecessors)])
                    times[task.name] = (start, start + task.seconds)
                    free[index] = start + task.seconds
                    blocked = False
                    next_task = next(queues[index], None)
                    if next_task is None:  # the stream has no more tasks
                        del heads[index], queues[index], free[index]
                        break
                    heads[index] = next_task
            if blocked:
                raise ValueError(f"tasks wait for each other in a circle: {[task.name for task in heads]}")
        return times


def stage_order(schedule: str, stage: int, stages: int, microbatches: int, chunks: int = 1) -> list[Step]:
    """The passes of one stage, in order, under "gpipe" or "1f1b", interleaved if it holds several chunks.

    >>> [step[0][0] + str(step[2]) for step in stage_order("1f1b", 1, 3, 4)]
    ['f0', 'f1', 'b0', 'f2', 'b1', 'f3', 'b2', 'b3']
    """
    total = microbatches * chunks
    warm_up = stages - 1 - stage
    if chunks > 1:
        warm_up = 2 * warm_up + (chunks - 1) * stages
    warm_up = total if schedule == "gpipe" else min(warm_up, total)
    group = stages * chunks

    def step(kind: str, index: int) -> Step:
        if chunks == 1:
            return kind, 0, index
        chunk = index % group // stages
        return (
            kind,
            chunk if kind == "forward" else chunks - 1 - chunk,
            index // group * stages + index % stages,
        )

    steps = [step("forward", index) for index in range(warm_up)]
    for index in range(total - warm_up):
        steps += [step("forward", index + warm_up), step("backward", index)]
    return steps + [step("backward", index) for index in range(total - warm_up, total)]


@dataclass(frozen=True)
class StagePasses:
    """Seconds of every chunk of every stage, [stage][chunk]: the passes, and the sends that keep their stage
    busy.

    `delay`: seconds from one stage to the next during which neither is busy. `ahead`: seconds of the backward
    pass that a stage works before the gradients come; none without it. `weight`: seconds of gradients of
    weights, where these are passes of their own.
    """

    forward: list[list[float]]
    backward: list[list[float]]
    send_forward: list[list[float]]
    send_backward: list[list[float]]
    delay: float = 0.0
    ahead: list[list[float]] = field(default_factory=list)
    weight: list[list[float]] | None = None

    def waiting(self, stage: int, chunk: int) -> float:
        """Seconds of a backward pass that wait for gradients."""
        return self.backward[stage][chunk] - (self.ahead[stage][chunk] if self.ahead else 0.0)


def add_split_pipeline(
    graph: Graph,
    passes: StagePasses,
    microbatches: int,
    schedule: str,
    gather: Sequence[float] = (),
    reduce: Sequence[float] = (),
) -> list[str]:
    """`add_pipeline` under a schedule that splits backward passes; returns the last task of every device.

    The first forward pass of a device that holds the model's first stage waits for `gather` buckets; along
    the last pass of the first device, which gives gradients of weights, `reduce` buckets start.
    """
    devices, last_tasks = len(passes.forward), []
    for device in range(devices):
        units = units_of(schedule, device, devices, microbatches)
        for number, unit in enumerate(units):
            place = place_of(schedule, device, devices, unit[0].chunk)
            name = " with ".join(_split_name(schedule, device, devices, each) for each in unit)
            predecessors = _unit_inputs(schedule, device, devices, unit)
            seconds = sum(_seconds_of(passes, device, each) for each in unit)
            if number == 0 and place.position == 0 and gather:
                _gather_along(graph, name, seconds, gather, device)
            elif number == len(units) - 1 and device == 0 and reduce:
                _reduce_along(graph, name, seconds, reduce, predecessors, {}, 0)
            else:
                graph.add(name, device, "compute", seconds, predecessors)
            for each in unit if len(unit) > 1 else ():  # passes that run as one end together
                graph.add(_split_name(schedule, device, devices, each), device, "compute", 0.0, [name])
            send = sum(_send_of(passes, device, each) for each in unit)
            sent_task = graph.add(f"send {name}", device, "compute", send, [name])
            for each in unit if len(unit) > 1 else ():
                sent = f"send {_split_name(schedule, device, devices, each)}"
                graph.add(sent, device, "compute", 0.0, [sent_task])
        last_tasks.append(sent_task)
    return last_tasks


def _split_name(schedule: str, device: int, devices: int, each: Pass) -> str:
    place = place_of(schedule, device, devices, each.chunk)
    direction = " back" if place.line else ""
    return f"{each.kind} {place.position}.{each.microbatch}{direction}"


def _unit_inputs(schedule: str, device: int, devices: int, unit: Unit) -> list[str]:
    """The sends that bring the inputs of a unit from other devices, or from before on the same one."""
    names = []
    for each in unit:
        place = place_of(schedule, device, devices, each.chunk)
        source = input_of(each, place)
        if source is None or (each.kind == "weight" and len(unit) > 1):
            continue
        kind, line, position, microbatch = source
        names.append(f"send {kind} {position}.{microbatch}{' back' if line else ''}")
    return names


def _seconds_of(passes: StagePasses, device: int, each: Pass) -> float:
    assert passes.weight is not None
    kinds = {"forward": passes.forward, "backward": passes.backward, "weight": passes.weight}
    return kinds[each.kind][device][each.chunk]


def _send_of(passes: StagePasses, device: int, each: Pass) -> float:
    if each.kind == "weight":
        return 0.0
    return (passes.send_forward if each.kind == "forward" else passes.send_backward)[device][each.chunk]


def add_pipeline(
    graph: Graph,
    passes: StagePasses,
    microbatches: int,
    schedule: str = "1f1b",
    gather: Sequence[float] = (),
    reduce: Sequence[float] = (),
    kernels: Mapping[str, float] | None = None,
) -> str:
    """Adds all passes of all micro-batches; returns the name of the last task of the first stage.

    `gather` and `reduce` are seconds of buckets on the first stage's network. The first forward pass waits
    for a `gather` bucket before each of its pieces; each piece of the last backward pass starts a `reduce`
    bucket, after the `kernels` on it, by name and in order, which keep the compute stream busy. The buckets
    of other chunks of the stage have theirs before that pass.
    """
    stages, chunks = len(passes.forward), len(passes.forward[0])
    for stage in range(stages):
        for kind, chunk, microbatch in stage_order(schedule, stage, stages, microbatches, chunks):
            name = _name(kind, chunk * stages + stage, microbatch)
            predecessors = _input(
                kind, chunk * stages + stage, microbatch, stages * chunks, passes.delay, graph
            )
            forward = kind == "forward"
            seconds = passes.forward[stage][chunk] if forward else passes.waiting(stage, chunk)
            if passes.ahead and not forward:
                graph.add(f"repeat{name.removeprefix(kind)}", stage, "compute", passes.ahead[stage][chunk])
            # The first pass waits for gathers, the last backward feeds reductions: both run in pieces.
            is_first = forward and stage == chunk == microbatch == 0
            is_final = not forward and stage == chunk == 0 and microbatch == microbatches - 1
            if is_first and gather:
                _gather_along(graph, name, seconds, gather)
            elif is_final and reduce:
                _reduce_along(graph, name, seconds, reduce, predecessors, kernels or {}, chunks - 1)
            else:
                graph.add(name, stage, "compute", seconds, predecessors)
            send = (passes.send_forward if forward else passes.send_backward)[stage][chunk]
            graph.add(f"send {name}", stage, "compute", send, [name])
    return f"send {_name('backward', 0, microbatches - 1)}"


def _name(kind: str, position: int, microbatch: int) -> str:
    return f"{kind} {position}.{microbatch}"


def _input(
    kind: str, position: int, microbatch: int, positions: int, delay: float, graph: Graph
) -> list[str]:
    """The task whose end delivers the input of a pass; `position` counts chunks along the model."""
    if kind == "forward":
        source = _name(kind, position - 1, microbatch) if position else None
    elif position == positions - 1:
        return [f"send {_name('forward', position, microbatch)}"]
    else:
        source = _name(kind, position + 1, microbatch)
    if source is None:
        return []
    if not delay:
        return [f"send {source}"]
    arrival = f"arrival of {source}"
    return [graph.add(arrival, position, arrival, delay, [f"send {source}"])]


def _gather_along(graph: Graph, name: str, seconds: float, buckets: Sequence[float], device: int = 0) -> None:
    pieces = len(buckets)
    for piece, bucket in enumerate(buckets):
        copy = f" on {device}" if device else ""
        gather_task = graph.add(f"gather {piece}{copy}", device, "network", bucket)
        is_last = piece == pieces - 1
        piece_name = name if is_last else f"{name} piece {piece}"
        graph.add(piece_name, device, "compute", seconds / pieces, [gather_task])


def _reduce_along(
    graph: Graph,
    name: str,
    seconds: float,
    buckets: Sequence[float],
    predecessors: Sequence[str],
    kernels: Mapping[str, float],
    other_chunks: int,
) -> None:
    pieces = len(buckets)
    for kernel, kernel_s in kernels.items():
        if other_chunks:
            graph.add(
                f"{kernel} of other chunks", 0, "compute", other_chunks * pieces * kernel_s, predecessors
            )
    for piece, bucket in enumerate(buckets):
        is_last = piece == pieces - 1
        task = graph.add(
            name if is_last else f"{name} piece {piece}", 0, "compute", seconds / pieces, predecessors
        )
        for kernel, kernel_s in kernels.items():
            task = graph.add(f"{kernel} {piece}", 0, "compute", kernel_s, [task])
        graph.add(f"reduce {piece}", 0, "network", bucket, [task])
