"""The environment: one episode is one simulation, one step is one choice of its policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium
from greenlet import GreenletExit, getcurrent, greenlet

from clustersim.analysis import summarise
from clustersim.engine import RunSetup, Simulation
from clustersim.records import MemoryRecorder
from clustersim.runs import RunConfig, Trace, recipe_values, setup_of
from clustersim.scheduler import Proposal, State
from itertime.errors import UserError
from traces.synthetic import Recipe

from .choosing import ChoosingScheduler
from .observation import Observation, Observer
from .rewards import RewardMeter

__all__ = ["ClusterEnv"]

_MOST_SEED = 2**31


class ClusterEnv(gymnasium.Env[Any, Any]):
    """Choose which waiting job starts next.

    | parameter | meaning | default |
    |---|---|---|
    | `trace` | the jobs of every episode: a file, jobs or a data frame | none: each episode draws its own |
    | `jobs`, `load` | of the streams that are drawn: LLM jobs and offered load (`traces.Recipe`) | 200, 1.2 |
    | `reward` | a name of `REWARDS` | jct |
    | `window`, `sizes` | see `Observer` | 16, (1,) |
    | `max_steps` | truncate an episode after as many steps | never |
    | further settings | of `clustersim.run`: `cluster`, `overheads`, `failures`, ... | as there |

    `reset` returns the first choice, `step` the next one. After the last, `terminated` is true and
    `info["summary"]` has the metrics of the run, as `clustersim.run(...).summary`. `info["time_s"]` is the
    simulated time, and `info["action_mask"]` the possible actions, as in the observation.

    Streams are drawn by the environment's own random generator, so `reset(seed=7)` always gives the same.
    UserError for settings, TableError for a trace.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        trace: Any = None,
        *,
        jobs: int = 200,
        load: float = 1.2,
        reward: str = "jct",
        window: int = 16,
        sizes: Sequence[float] = (1.0,),
        max_steps: int | None = None,
        render_mode: str | None = None,
        **settings: Any,
    ):
        if "policy" in settings or "params" in settings:
            raise UserError("policy: the agent is the policy; leave it out")
        if settings.get("routing") is not None:
            raise UserError("routing: an agent serves one cluster; leave it out")
        if max_steps is not None and max_steps < 1:
            raise UserError(f"max_steps={max_steps!r}: must be at least 1")
        self.render_mode, self.reward, self.max_steps = render_mode, reward, max_steps
        self._window, self._sizes = window, sizes
        RewardMeter(reward)  # raises for an unknown name
        self._observer = Observer(window, sizes)
        self.observation_space = self._observer.observation_space
        self.action_space = self._observer.action_space
        self._config = RunConfig.make(policy="fifo", **{"bound": "none", **settings})
        self._recipe = Recipe(jobs=jobs, load=load, **recipe_values(self._config))
        self._trace = None
        if trace is not None:
            self._trace = Trace.given(trace, self._config.table, self._config.model_path)
        self._setup: RunSetup | None = None
        self._episode: _Episode | None = None
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; the first choice. `options` are not used."""
        super().reset(seed=seed)
        self.close()
        trace = self._trace
        if trace is None:
            drawn = int(self.np_random.integers(_MOST_SEED))
            trace = Trace.generated(replace(self._recipe, seed=drawn))
        if self._setup is None:
            self._setup = setup_of(self._config, models=trace.models)
        agent = _Agent(self.reward, self._window, self._sizes)
        self._episode = _Episode(trace, replace(self._setup, scheduler=agent), agent)
        self._steps = 0
        observation = self._episode.advance(None)
        return self._observed(observation), self._info(observation)

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take an action; the next choice, what was earned until then, whether all is done."""
        episode = self._episode
        if episode is None or episode.ended:
            raise gymnasium.error.ResetNeeded("the episode is over; call reset()")
        if not self.action_space.contains(action):
            raise gymnasium.error.InvalidAction(f"action={action!r}: must be in {self.action_space}")
        observation = episode.advance(int(action))
        self._steps += 1
        terminated = observation is None
        truncated = not terminated and self.max_steps is not None and self._steps >= self.max_steps
        earned = episode.agent.meter.take()
        return self._observed(observation), earned, terminated, truncated, self._info(observation)

    def action_masks(self) -> Any:
        """The possible actions, as sb3-contrib's MaskablePPO asks for them."""
        episode = self._episode
        return self._observed(None if episode is None else episode.observation)["action_mask"].astype(bool)

    def render(self) -> str | None:
        """The time, the free GPUs and the jobs, as a line."""
        return None if self._episode is None else self._episode.agent.sketch

    def close(self) -> None:
        """End the simulation of an episode that is not over."""
        if self._episode is not None:
            self._episode.end()
            self._episode = None

    def _observed(self, observation: Observation | None) -> Observation:
        return self._observer.empty() if observation is None else observation

    def _info(self, observation: Observation | None) -> dict[str, Any]:
        episode = self._episode
        assert episode is not None
        info: dict[str, Any] = {"time_s": episode.agent.now_s}
        info["action_mask"] = self._observed(observation)["action_mask"]
        if observation is None:
            info["summary"] = episode.summary
        return info


class _Agent(ChoosingScheduler):
    """The policy of an episode: hands every choice to the environment, and waits for the action."""

    def __init__(self, reward: str, window: int, sizes: Sequence[float]):
        super().__init__(window, sizes)
        self.meter, self.now_s, self.sketch = RewardMeter(reward), 0.0, ""
        self.environment: greenlet | None = None

    def choose(self, observation: Observation) -> int:
        assert self.environment is not None
        action: int = self.environment.switch(observation)
        return action

    def schedule(self, state: State) -> Proposal:
        self.now_s = state.now
        self.meter.before(state)
        proposal = super().schedule(state)
        running = proposal.running()
        self.meter.after(state, len(running), sum(proposal.gpus(job) for job in running))
        self.sketch = (
            f"t={state.now:g} s: {len(running)} jobs run, {proposal.free} of {state.in_service} GPUs are free"
        )
        return proposal


class _Episode:
    """A simulation in a greenlet, which stands still while the agent chooses."""

    def __init__(self, trace: Trace, setup: RunSetup, agent: _Agent):
        self.agent = agent
        self.observation: Observation | None = None
        self.summary: dict[str, Any] | None = None
        self._simulation = Simulation(trace.jobs, setup, MemoryRecorder(setup.cluster))
        self._setup = setup
        self._course = greenlet(self._run)

    @property
    def ended(self) -> bool:
        """Whether the simulation is over."""
        return self._course.dead

    def advance(self, action: int | None) -> Observation | None:
        """Act, and go on to the next choice; None at the end. Errors of the simulation come out here."""
        self.agent.environment = getcurrent()
        self.observation = self._course.switch(action) if action is not None else self._course.switch()
        return self.observation

    def end(self) -> None:
        """Give the simulation up."""
        if self._course and not self._course.dead:
            self._course.throw(GreenletExit)

    def _run(self) -> None:
        recorder = self._simulation.run()
        setup = self._setup
        self.summary = summarise(
            recorder.job_table, recorder.usage_table, setup.cluster,
            end_s=recorder.end_s, events=recorder.event_count, bound=None,
            price_usd_per_gpu_h=setup.price.usd_per_gpu_hour,
        )  # fmt: skip
