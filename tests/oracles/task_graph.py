"""The task graph of an iteration as the oracle of its prediction."""

import pytest

from itertime.prediction import Prediction, predict
from itertime.spec import ModelSpec, Plan, System
from itertime.timeline import iteration_graph
from itertime.timeline.task_graph import Graph


def predicted_as_the_graph(model: ModelSpec, plan: Plan, system: System) -> tuple[Prediction, Graph]:
    """Prediction and task graph of a plan, after asserting that they take as long, and that the parts of the
    prediction sum to it.
    """
    graph = iteration_graph(model, plan, system)
    finish = max(end for _, end in graph.run().values())
    found = predict(model, plan, system)
    assert found.iteration_s == pytest.approx(finish, rel=1e-9)
    assert sum(found.breakdown.values()) == pytest.approx(finish, rel=1e-9)
    return found, graph
