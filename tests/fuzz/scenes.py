"""Scenes drawn from a number: a policy, jobs, a cluster and settings; how one is run, and what holds for it.

    python -m tests.fuzz.scenes 17           # run scene 17 as the test does, and print what it is made of
    python -m tests.fuzz.scenes 17 --keep F  # the same, with its files in the folder F
    python -m tests.fuzz.scenes --renew      # record the results of all scenes of the default run

The scenes of the default run are also held to their results of before (`scenes.csv`): what a change of the
code alone should leave as it is. A change that is meant to move results renews them, as in `tests/golden`.

Scene n has policy n modulo their number. Its first feature goes round too, one step further with every round
of the policies, so that all policies meet all features; further features are drawn. From scene 1000 on there
are twice as many, more jobs, and half of the scenes give their policy another value of a parameter.
"""

import argparse
import csv
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

import clustersim
from clustersim.runs import find_policy, list_policies
from itertime.errors import UserError

from .cases import Case, Fault, keep
from .cases import check as check_case
from .features import FEATURES, Scene, new_scene
from .relations import RELATIONS

__all__ = ["BY_DEFAULT", "KNOWN", "POLICIES", "Draw", "check", "drawn", "pairs", "recorded", "routed"]

Parameters = dict[str, Any]

RESULTS = Path(__file__).with_name("scenes.csv")

POLICIES = [info.name for info in list_policies()]
NEED_PLANS = {"tiers", "contention", "planners"}
INSTEAD_OF_EACH_OTHER = [
    {"fleet", "routing"}, {"tiers", "contention", "placements"}, {"overheads", "shared storage"},
    {"calendar", "removal"}, {"phases", "batches"}, {"parts of gpus", "sharing"}, {"estimates", "predictor"},
]  # fmt: skip
"""Features that state the same thing."""
KNOWN: dict[frozenset[str], str] = {}
"""Faults of the simulator that are known: features, or a policy and a feature, that no scene has together."""
REFUSED: dict[frozenset[str], str] = {
    frozenset({"routing", "quotas"}): "quotas: holds for one cluster",
    frozenset({"routing", "shared storage"}): "storage_shared: holds for one cluster",
}
"""Features that the simulator refuses together, and what it says."""
PARAMETERS: dict[str, list[Parameters]] = yaml.safe_load(
    Path(__file__).with_name("parameters.yaml").read_text(encoding="utf-8")
)
DISTURBANCES = (
    "failures", "calendar", "removal", "spot", "reservations", "services", "host demands", "parts of gpus",
)  # fmt: skip
"""The features that keep a job off some nodes of its cluster, or off all of them."""


def refusal(policy: str, features: Iterable[str], parameters: Parameters | None = None) -> str | None:
    """What the simulator says to a policy with these features; None if it runs them."""
    present = {policy, *features}
    scheduler = find_policy(policy)(**(parameters or {}))
    if scheduler.one_gpu_type and present & {"gpu types", "fleet"}:
        return "plans with one GPU type, the cluster has"
    if scheduler.equal_nodes and "node sizes" in present:
        return "plans with nodes of one size"
    if scheduler.packs > 1 and present & {"tiers", "contention"}:
        return "runs jobs on the same GPUs, and no model says"
    return next((text for features, text in REFUSED.items() if features <= present), None)


def go_together(policy: str, features: Iterable[str]) -> bool:
    """Whether a scene may have all of these."""
    present = {policy, *features}
    return not any(len(group & present) > 1 for group in INSTEAD_OF_EACH_OTHER) and not any(
        known <= present for known in KNOWN
    )


STATED = ("holds", "stated ends", "node shapes")
"""Features that no drawn scene has, so that the others stay as they are; see `stated`."""
FIRST_LARGE = 1000
"""The first scene with more features and jobs."""


@dataclass(frozen=True)
class Draw:
    """A scene before it is made. `number`: of everything random in it."""

    number: int
    policy: str
    features: tuple[str, ...]
    parameters: Parameters = field(default_factory=dict)

    def __str__(self) -> str:
        values = f" {self.parameters}" if self.parameters else ""
        return f"{self.number} {self.policy}{values}: {', '.join(self.features)}"

    def scene(self) -> Scene:
        random = Random(f"scene {self.number}")
        planned = bool(NEED_PLANS & set(self.features)) or random.random() < 0.15
        counts = (6, 10, 14, 24) if self.number < FIRST_LARGE else (10, 24, 40)
        scene = new_scene(self.policy, random, counts, planned=planned)
        scene.settings |= {"bound": "none", "seed": self.number}
        if self.parameters:
            scene.settings["params"] = self.parameters
        for name, feature in FEATURES.items():
            if name in self.features:
                feature(scene)
        return scene


def drawn(number: int) -> Draw:
    """Scene `number`, as the module's docstring says."""
    names, random = [name for name in FEATURES if name not in STATED], Random(f"features {number}")
    policy = POLICIES[number % len(POLICIES)]
    first = (number + number // len(POLICIES)) % len(names)
    features = next([name] for name in names[first:] + names if go_together(policy, [name]))
    is_large, parameters = number >= FIRST_LARGE, Parameters()
    if is_large and random.random() < 0.5:
        parameters = random.choice(PARAMETERS.get(policy, [{}]))
    names = random.sample(names, 6 if is_large else 3)
    for name in names if refusal(policy, features, parameters) is None else ():
        more = [*features, name]
        together = name not in features and go_together(policy, more)
        if together and refusal(policy, more, parameters) is None:
            features = more
    return Draw(number, policy, tuple(features), parameters)


def pairs() -> Iterator[Draw]:
    """A scene for every pair of features that go together, with the first policy in turn that runs both."""
    for number, pair in enumerate(combinations(FEATURES, 2)):
        turn = number % len(POLICIES)
        policies = [name for name in POLICIES[turn:] + POLICIES[:turn] if go_together(name, pair)]
        if policies:
            able = [name for name in policies if refusal(name, pair) is None]
            yield Draw(100_000 + number, (able or policies)[0], pair)


def stated() -> Iterator[Draw]:
    """What traces state about when, where and how often jobs run, with every third policy, and with another
    feature each.
    """
    others = [name for name in FEATURES if name not in STATED]
    for number, policy in enumerate(POLICIES[::3]):
        choices = [(STATED[number % 3], name) for name in others[5 * number % len(others) :] + others]
        able = (pair for pair in choices if go_together(policy, pair) and refusal(policy, pair) is None)
        yield Draw(300_000 + number, policy, next(able))


def routed() -> Iterator[Draw]:
    """What disturbs the nodes of a fleet with routing, each with three policies, other ones each."""
    able = [name for name in POLICIES if refusal(name, ["routing"]) is None]
    for number, disturbance in enumerate(DISTURBANCES):
        for policy in able[number :: len(able) // 3][:3]:
            yield Draw(200_000 + 100 * number + POLICIES.index(policy), policy, ("routing", disturbance))


def check(draw: Draw, folder: Path, relations: Sequence[str] = tuple(RELATIONS)) -> str:
    """Run a scene and hold it to what every run keeps, and to these relations (`cases.check`). Files go to
    `folder`. Returns a hash of its log and its job records, or "refused".

    A scene that fails becomes a small case in a folder of its own; Fault ends with the command that runs it.
    """
    case = Case.of(draw.scene())
    text = refusal(draw.policy, draw.features, draw.parameters)
    if text is not None:
        settings = case.write(folder)
        with pytest.raises(UserError, match=text):
            clustersim.run(folder / "jobs.csv", draw.policy, **settings)
        return "refused"
    try:
        return check_case(case, folder, relations, replays=draw.number % 6 == 0)
    except Fault as fault:
        raise keep(case, fault, str(draw.number), relations) from fault


def recorded() -> dict[int, str]:
    """The results of scenes by their number."""
    with RESULTS.open(encoding="utf-8", newline="") as file:
        return {int(row["scene"]): row["result"] for row in csv.DictReader(file)}


BY_DEFAULT = [*(drawn(number) for number in range(10 * len(POLICIES))), *stated()]


def main() -> None:
    parser = argparse.ArgumentParser(description="Run scenes by number.")
    parser.add_argument("numbers", type=int, nargs="*")
    parser.add_argument("--keep", type=Path, help="a folder for the files of the scenes")
    parser.add_argument("--renew", action="store_true", help="record the results of the default run")
    options = parser.parse_args()
    of_pairs = {draw.number: draw for draw in (*pairs(), *routed(), *stated())}
    scenes = [of_pairs.get(number) or drawn(number) for number in options.numbers]
    rows = []
    for draw in BY_DEFAULT if options.renew else scenes:
        with tempfile.TemporaryDirectory() as temporary:
            home = (options.keep or Path(temporary)) / str(draw.number)
            home.mkdir(parents=True)
            rows.append((draw.number, draw.policy, ", ".join(draw.features), check(draw, home)))
            print(*rows[-1], flush=True)
    if options.renew:
        with RESULTS.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(
                [("scene", "policy", "features", "result"), *rows]
            )


if __name__ == "__main__":
    main()
