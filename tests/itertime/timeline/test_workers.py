"""Iterations of workers that exchange seldom, and of shards of different sizes: formulas against the task
graph.
"""

from __future__ import annotations

from dataclasses import replace

from itertime import Plan, load_model, load_system, predict
from itertime.spec import PlanOptions
from itertime.timeline import iteration_graph

H100 = load_system("dgx-h100")
SYSTEMS = (H100, replace(H100, site_link_bytes_per_s=5e9), replace(H100, gpus_per_node=4))


def test_the_exchange_is_the_last_but_the_overheads_and_lasts_its_share_of_an_iteration():
    options = PlanOptions(workers=4, local_steps=500, outer="diloco")
    plan = Plan(1, 2, 32, 1, 64, options=options)
    graph = iteration_graph(load_model("llama2-7b"), plan, SYSTEMS[1])
    task = graph.tasks["exchange between workers (1/500)"]
    found = predict(load_model("llama2-7b"), plan, SYSTEMS[1])
    assert (task.stream, task.predecessors) == ("network", ("optimizer",))
    assert task.seconds == found.breakdown["outer_sync"] > 0
