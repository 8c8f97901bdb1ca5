"""A Gymnasium environment: learn which job starts next, and run what was learned as a policy.

| name | what |
|---|---|
| `ClusterEnv` | the environment: one episode is one simulation, one step is one choice |
| `Observer` | what an agent sees of the queue and the cluster, as arrays with a mask of possible actions |
| `JOB_FEATURES`, `CLUSTER_FEATURES` | names and meanings of the columns of an observation |
| `REWARDS` | names and meanings of the rewards |
| `ChoosingScheduler` | base of policies that act by observations: implement `choose` |
| `LinearScheduler` | the policy of a weight for every job feature, as learned by `learn` |
| `learn` | the cross-entropy method over these weights |

Needs the extra `rl` (gymnasium, greenlet). Importing the package registers `clustersim/Cluster-v0`:

    import gymnasium, clustersim.gym
    env = gymnasium.make("clustersim/Cluster-v0", jobs=200, cluster="n16g8", reward="jct")

Why
- The simulation runs in a greenlet and hands control over where the policy would decide. So the engine is the
  one that everything else runs on, an episode is a run under a policy, and no thread is needed.
- An agent is asked only where it has a choice: some job in its window can start. One instant may take
  several steps, as a policy may start several jobs.
- Rewards are integrals over time whose sum is the metric itself: with `jct`, minus the sum of all completion
  times. No shaping stands between what is learned and what is compared.
"""

from __future__ import annotations

import gymnasium

from .choosing import ChoosingScheduler
from .environment import ClusterEnv
from .learning import LinearScheduler, learn
from .observation import CLUSTER_FEATURES, JOB_FEATURES, Observer
from .rewards import REWARDS

__all__ = [
    "CLUSTER_FEATURES",
    "JOB_FEATURES",
    "REWARDS",
    "ChoosingScheduler",
    "ClusterEnv",
    "LinearScheduler",
    "Observer",
    "learn",
]

if "clustersim/Cluster-v0" not in gymnasium.registry:
    gymnasium.register("clustersim/Cluster-v0", entry_point="clustersim.gym:ClusterEnv")
