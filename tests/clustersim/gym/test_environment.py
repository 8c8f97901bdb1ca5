"""The environment: Gymnasium's own check, rewards that add up to metrics, actions, agents as policies."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium", reason="the extra rl is not installed")

import clustersim  # noqa: E402
from clustersim.gym import (  # noqa: E402
    CLUSTER_FEATURES,
    JOB_FEATURES,
    REWARDS,
    ChoosingScheduler,
    ClusterEnv,
    LinearScheduler,
    learn,
)
from clustersim.gym.learning import episode_return  # noqa: E402
from tests import effort  # noqa: E402
from tests.places import ROOT  # noqa: E402
from traces import Job  # noqa: E402

Choose = Callable[[Any], int]
SMALL = {"jobs": 30, "cluster": "n4g8"}


def first(observation: Any) -> int:
    """As fifo-skip within the window."""
    possible = observation["action_mask"][1:]
    return 1 + int(possible.argmax()) if possible.any() else 0


def last(observation: Any) -> int:
    return int(observation["action_mask"].nonzero()[0][-1])


def play(env: ClusterEnv, choose: Choose, seed: int = 0) -> tuple[float, dict[str, Any], int]:
    observation, info = env.reset(seed=seed)
    total, steps, over = 0.0, 0, False
    while not over:
        observation, reward, terminated, truncated, info = env.step(choose(observation))
        total, steps, over = total + reward, steps + 1, terminated or truncated
    return total, info, steps


@pytest.mark.filterwarnings("error", "ignore::pytest.PytestUnraisableExceptionWarning")  # of other tests
@pytest.mark.parametrize("reward", effort.first(1, sorted(REWARDS, key="utilization".__ne__)))
def test_gymnasium_finds_no_fault(reward: str) -> None:
    from gymnasium.utils.env_checker import check_env

    env = gymnasium.make("clustersim/Cluster-v0", reward=reward, **SMALL)
    check_env(env.unwrapped)


@pytest.mark.parametrize(
    ("reward", "metric", "jobs"),
    [("jct", "jct_mean_s", 30), ("wait", "wait_mean_s", 30), ("makespan", "makespan_s", 1)],
)
def test_rewards_add_up_to_metrics(reward: str, metric: str, jobs: int) -> None:
    earned, info, _ = play(ClusterEnv(reward=reward, **SMALL), first, seed=3)
    assert earned == pytest.approx(-jobs * info["summary"][metric] / 3600)


def test_rewards_count_deadlines_met_and_slowdowns() -> None:
    earned, info, _ = play(ClusterEnv(reward="deadlines", **SMALL), first, seed=3)
    assert earned == round(info["summary"]["deadline_met_ratio"] * info["summary"]["deadline_jobs"]) > 0
    earned, _, _ = play(ClusterEnv(reward="slowdown", **SMALL), first, seed=3)
    assert earned < -30  # every job takes at least its run time


def test_an_agent_that_takes_the_first_is_fifo_skip() -> None:
    jobs = [Job(f"j{i}", 50.0 * i, gpus=[8, 16, 2, 24][i % 4], duration_s=300.0 + 7 * i) for i in range(60)]
    _, info, steps = play(ClusterEnv(jobs, window=60, cluster="n4g8"), first)
    assert (
        info["summary"]["jct_mean_s"]
        == clustersim.run(jobs, "fifo-skip", cluster="n4g8").summary["jct_mean_s"]
    )
    assert steps == 60


def test_the_model_as_a_policy_does_what_the_agent_did() -> None:
    class Last(ChoosingScheduler):
        def choose(self, observation: Any) -> int:
            return last(observation)

    jobs = [Job(f"j{i}", 20.0 * i, gpus=1 + i % 8, duration_s=400.0) for i in range(80)]
    _, info, _ = play(ClusterEnv(jobs, cluster="n2g8"), last)
    run = clustersim.run(jobs, Last, cluster="n2g8")
    assert info["summary"]["jct_mean_s"] == run.summary["jct_mean_s"]
    assert info["summary"]["jct_p99_s"] == run.summary["jct_p99_s"]


def test_seeds_decide_the_stream() -> None:
    env = ClusterEnv(**SMALL)
    one, again, other = (play(env, first, seed)[1]["summary"] for seed in (5, 5, 6))
    assert one == again
    assert one != other


def test_sizes_are_choices() -> None:
    env = ClusterEnv(sizes=(0.5, 1.0, 2.0), **SMALL)
    assert env.action_space.n == 1 + 16 * 3
    _, info, _ = play(env, last, seed=1)
    assert info["summary"]["finished"] == 30


@pytest.mark.parametrize("action", [0, 16], ids=["wait", "not possible"])
def test_what_is_not_possible_lets_time_pass_and_every_episode_ends(action: int) -> None:
    _, info, _ = play(ClusterEnv(**SMALL), lambda observation: action, seed=2)
    assert info["summary"]["finished"] == 30


def test_steps_after_the_end_and_wrong_actions_are_refused() -> None:
    env = ClusterEnv(max_steps=1, **SMALL)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(gymnasium.error.InvalidAction):
        env.step(17)
    _, _, terminated, truncated, _ = env.step(1)
    assert truncated
    assert not terminated
    env.close()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)


@pytest.mark.parametrize("mode", ["sync", pytest.param("async", marks=pytest.mark.long)])
def test_environments_side_by_side(mode: str) -> None:
    vector = gymnasium.make_vec("clustersim/Cluster-v0", num_envs=3, vectorization_mode=mode, **SMALL)
    observation, _ = vector.reset(seed=1)
    for _ in range(40):
        actions = np.array([int(mask.nonzero()[0][-1]) for mask in observation["action_mask"]])
        observation, rewards, _, _, _ = vector.step(actions)
        assert rewards.shape == (3,)
    vector.close()


def test_learning_earns_more_than_taking_the_first() -> None:
    env = ClusterEnv(jobs=60, cluster="n4g8", load=1.5)
    weights = learn(env, generations=2, population=6, elite=2)
    unseen = range(900, 904)
    learned, fifo = (
        sum(episode_return(env, w, seed) for seed in unseen) for w in (weights, np.zeros(len(JOB_FEATURES)))
    )
    assert learned > fifo
    assert LinearScheduler(weights).weights == tuple(weights)


def test_the_page_has_the_tables_and_its_code_runs() -> None:
    page = (ROOT / "docs" / "gym.md").read_text(encoding="utf-8")
    for table in (CLUSTER_FEATURES, JOB_FEATURES, REWARDS):
        assert "\n".join(f"| `{name}` | {meaning} |" for name, meaning in table.items()) in page
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        exec(block, names)
    jobs = [Job(f"j{i}", 0.0, gpus=1 + i % 8, duration_s=400.0) for i in range(20)]
    assert clustersim.run(jobs, names["Narrowest"], cluster="n1g8").summary["finished"] == 20
