"""Traces with deadlines that anything unforeseen would break, and what holds at every decision of a policy
that keeps its reservations.
"""

from collections import Counter
from random import Random
from typing import Any

from clustersim.overheads import Overheads
from clustersim.scheduler import Proposal, State
from clustersim.testing import Outcome
from policies.reservation import Reservations, kernels
from tests.builders import Bench, MixedBench, elastic, rigid
from traces.job import Job

__all__ = ["hostile_bench", "late", "mixed_bench", "random_bench", "watch"]


def late(outcome: Outcome) -> list[tuple[str, float]]:
    return [
        (record.job_id, record.finish_s - record.deadline_s)
        for record in outcome.records
        if record.state == "finished" and record.finish_s and record.deadline_s and not record.deadline_met
    ]


def random_bench(seed: int, scale: float, placement: str) -> tuple[Any, list[Job]]:
    """Jobs of four models that scale, need and restart differently, in bursts; tight and loose deadlines."""
    random = Random(seed)
    nodes = random.choice((1, 2, 4, 16))
    table, parameters = {}, {}
    for model in "abcd":
        least, power, base = (
            random.choice((1, 1, 2, 4, 8)),
            random.uniform(0.3, 1.0),
            10 ** random.uniform(-2, 1),
        )
        counts = [n for n in (1, 2, 4, 8, 16, 32, 64, 128) if least <= n <= 8 * nodes]
        table[model, 8] = {n: base * n**power for n in counts}
        parameters[model] = random.choice((0.0, 1e9, 2e10))
    load, now, jobs = random.uniform(0.3, 3), 0.0, []
    for i in range(random.randint(3, 40)):
        model = random.choice("abcd")
        gpus = random.choice(list(table[model, 8]))
        run_s = random.lognormvariate(random.choice((4, 7)), 1.2)
        now += random.choice((0.0, random.expovariate(2 * nodes * load / (gpus * run_s + 1))))
        deadline_s = None
        if random.random() < 0.85:
            deadline_s = now + run_s * random.uniform(0.5, 3) + random.choice((0, 0, 100 * scale))
        jobs.append(elastic(str(i), now, gpus, run_s * table[model, 8][gpus], deadline_s, model=model))
    return Bench(f"n{nodes}g8", table, parameters, Overheads(scale=scale), placement), jobs


def hostile_bench(seed: int, scale: float, placement: str = "pack") -> tuple[Any, list[Job]]:
    """Rigid and elastic jobs of odd counts in bursts on few nodes of 4, 6 or 8 GPUs, many of them late if
    anything goes wrong once.
    """
    random = Random(seed)
    node, nodes = random.choice((4, 6, 8)), random.randint(1, 8)
    table, parameters = {}, {}
    for model in "abc":
        least, power, base = (
            random.choice((1, 2, 3, 5, 8)),
            random.uniform(0.3, 1),
            10 ** random.uniform(-2, 1),
        )
        counts = random.choice(((1, 2, 4, 8, 16, 32), (1, 2, 3, 5, 6, 7, 9, 12, 24), (1, 3, 6, 12, 24)))
        able = [n for n in counts if least <= n <= node * nodes] or [1]
        table[model, 8] = {n: base * n**power for n in able}
        parameters[model] = random.choice((0.0, 1e9, 2e10))
    small = [n for n in (1, 2, 3, 4, 5) if n <= node]
    load, share, now, jobs = random.uniform(0.5, 3), random.choice((0.0, 0.5, 1.0)), 0.0, []
    for i in range(random.randint(5, 50)):
        model, is_rigid = random.choice("abc"), random.random() >= share
        odd = small if random.random() < 0.6 else [n for n in range(1, 25) if n <= node * nodes]
        gpus = random.choice(odd if is_rigid else list(table[model, 8]))
        run_s = random.lognormvariate(random.choice((4, 6, 7)), 1.0)
        now += random.choice((0.0, random.expovariate(node * nodes * load / (gpus * run_s + 1))))
        deadline_s = now + run_s * random.uniform(0.6, 4) + 100 * scale * random.random()
        if is_rigid:
            jobs.append(rigid(str(i), now, gpus, run_s, deadline_s))
            continue
        best_effort = random.random() < 0.1
        work = run_s * table[model, 8][gpus]
        jobs.append(elastic(str(i), now, gpus, work, None if best_effort else deadline_s, model=model))
    return Bench(f"n{nodes}g{node}", table, parameters, Overheads(scale=scale), placement), jobs


def mixed_bench(seed: int, scale: float, placement: str) -> tuple[MixedBench, list[Job]]:
    """Rigid and elastic jobs in bursts on two or three types of small pools; some types cannot run some
    models, and nodes differ in size.
    """
    random = Random(seed)
    groups = [(name, random.randint(1, 4), random.choice((4, 8))) for name in "xyz"[: random.randint(2, 3)]]
    tables: dict[str, dict[tuple[str, int], dict[int, float]]] = {name: {} for name, *_ in groups}
    parameters = {}
    for model in "abc":
        least, power = random.choice((1, 1, 2, 3, 4)), random.uniform(0.3, 1.0)
        base = 10 ** random.uniform(-2, 1)
        counts = random.choice(((1, 2, 4, 8, 16, 32), (1, 2, 3, 4, 6, 8, 12, 24)))
        parameters[model] = random.choice((0.0, 1e9, 2e10))
        able = [group for group in groups if random.random() < 0.8] or groups[:1]
        for name, nodes, node in able:
            speed = random.choice((1.0, 2.0, random.uniform(0.5, 5)))
            sizes = [n for n in counts if least <= n <= nodes * node]
            tables[name][model, 8] = {n: speed * base * n**power for n in sizes or [1]}
    load, now, jobs = random.uniform(0.5, 3), 0.0, []
    gpus_in_all = sum(nodes * node for _, nodes, node in groups)
    for i in range(random.randint(5, 40)):
        model = random.choice("abc")
        rates = random.choice([table[model, 8] for table in tables.values() if (model, 8) in table])
        gpus = random.choice(list(rates))
        run_s = random.lognormvariate(random.choice((4, 6, 7)), 1.0)
        now += random.choice((0.0, random.expovariate(gpus_in_all * load / (gpus * run_s + 1))))
        deadline_s = None
        if random.random() < 0.85:
            deadline_s = now + run_s * random.uniform(0.4, 4) + 100 * scale * random.random()
        if random.random() < 0.25:
            jobs.append(rigid(str(i), now, random.choice((1, 2, 3, 4, 8)), run_s, deadline_s))
            continue
        wish = {"gpu_type": random.choice([name for name, *_ in groups])} if random.random() < 0.1 else {}
        jobs.append(elastic(str(i), now, gpus, run_s * rates[gpus], deadline_s, model=model, **wish))
    return MixedBench(groups, tables, parameters, Overheads(scale=scale), placement), jobs


def watch(proposal: Proposal, reservations: Reservations, state: State) -> Proposal:
    """Hold a decision to what the theorem says (`policies.reservation`)."""
    rows = {job: reservations.jobs.rows[i] for job, i in reservations.row.items()}
    reserved = {job: row for job, row in rows.items() if row.row >= 0}
    size_of = reservations.sizes.rows
    for job, row in reserved.items():
        size = size_of[row.row]
        is_new = job in proposal.changes or not job.gpus
        opening_s = row.paying_s if kernels.is_there(row) and not is_new else size.restart_s
        if row.is_new:
            opening_s = size.launch_s
        end_s = max(row.start_s, state.now) + opening_s + row.work / size.rate
        assert end_s <= row.end_s + 1e-3, "the reservation is enough, if followed"
        assert row.end_s <= row.deadline_s + 1e-3
        if kernels.is_due(row, state.now):
            gpu_type = proposal.gpu_type(job) if state.cluster.mixed else None
            assert job.rate(proposal.gpus(job), gpu_type) >= size.rate, "a job that is due runs as fast"
    for time_s in [state.now, *(row.start_s for row in reserved.values() if row.start_s > state.now)]:
        whole, parts = Counter[int](), Counter[tuple[int, int]]()
        for row in reserved.values():
            if row.start_s <= time_s + 1e-6 and row.end_s > time_s + 1e-6:
                size = size_of[row.row]
                if row.address < 0:
                    whole[size.type] += size.nodes
                else:
                    parts[size.type, row.address] += size.gpus
        for t, pool in enumerate(reservations.pools):
            assert all(gpus <= pool.gpus_per_node for (u, _), gpus in parts.items() if u == t)
            assert whole[t] + sum(u == t for u, _ in parts) <= pool.nodes, "nodes enough"
    return proposal
