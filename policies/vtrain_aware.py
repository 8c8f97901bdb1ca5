"""The scheduler of the vTrain paper's multi-tenant study.

Bang et al., "vTrain: A Simulation Framework for Evaluating Cost-Effective and Compute-Optimal Large
Language Model Training", MICRO 2024, section V-B.
"""

from __future__ import annotations

from policies.elasticflow import ElasticFlow

__all__ = ["VTrainAware"]


class VTrainAware(ElasticFlow):
    """ElasticFlow's algorithm, with the best tensor, data and pipeline-parallel plan for every GPU count
    instead of data parallelism alone.
    """

    planner = "best"
