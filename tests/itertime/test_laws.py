"""Laws that hold whatever is asked: of one answer, and of two to questions that differ in one thing
(`laws.yaml`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from itertime import Plan, Prediction, evaluate, load_model, load_system, predict
from itertime.errors import UserError
from itertime.spec import (
    DEFAULT_OPTIONS,
    ModelSpec,
    PlanBatch,
    Profile,
    System,
    list_frameworks,
    list_models,
    list_systems,
    profile_of,
)
from itertime.timeline import iteration_graph
from tests.golden.queries import drawn_plan

LAWS = yaml.safe_load(Path(__file__).with_name("laws.yaml").read_text(encoding="utf-8"))
LENGTHS = (0, 0, 512, 2048, 8192, 32_768, 131_072, 1_048_576)
"""Tokens of a sequence; 0: the model's own."""
ROUNDING = 1e-9
MOST_TASKS = 3000  # of a timeline


@dataclass(frozen=True)
class Question:
    model: ModelSpec
    plan: Plan
    system: System

    @property
    def profile(self) -> Profile:
        return profile_of(self.system)

    def changed(self, law: dict[str, Any]) -> Question | None:
        """The question after the change of a law; None if the law does not apply."""
        names = {"model": self.model, "plan": self.plan, "system": self.system, "profile": self.profile}
        names["DEFAULT_OPTIONS"] = DEFAULT_OPTIONS
        splits_anew = "model" in law and self.plan.split == "compute"  # by the arithmetic of the model
        if splits_anew or not eval(law.get("where", "True"), names):
            return None

        def fields(part: str) -> dict[str, Any]:
            texts = law.get(part, {})
            return {key: _value(text, names) for key, text in texts.items()}

        try:
            plan = replace(self.plan, **fields("plan"))
            model = replace(self.model, **fields("model"))
            site = replace(self.system.site, **fields("site"))
            system = replace(self.system, site=site, **fields("system"))
        except UserError:
            return None
        return None if plan.broken_rules(model) else Question(model, plan, system)

    def answer(self) -> Prediction | None:
        """None for what is refused, such as a precision that the GPU lacks."""
        try:
            return predict(self.model, self.plan, self.system)
        except UserError as error:
            if "utilisation=" in str(error):
                raise
            return None


def _value(text: Any, names: dict[str, Any]) -> Any:
    return eval(text, names) if isinstance(text, str) and not text.replace("-", "").isalpha() else text


def questions(count: int, seed: int) -> Iterator[tuple[Question, Prediction]]:
    """Questions that are answered, of any shipped model, system and framework, drawn from a seed."""
    dice = random.Random(seed)
    while count:
        name, tokens = dice.choice(list_systems()), dice.choice(LENGTHS)
        system = replace(load_system(name), framework=dice.choice(list_frameworks()))
        model = load_model(dice.choice(list_models()))
        if tokens and not model.lengths:
            model = model.with_seq_len(tokens)
        try:
            plan, copies = drawn_plan(dice, model, name), dice.choice((1, 1, 1, 8, 64))
            plan = replace(plan, dp=copies * plan.dp, global_batch=copies * plan.global_batch)
            if dice.random() < 0.3:
                plan = replace(plan, cp=dice.choice((2, 4, 8, 16)))
            question = Question(model, plan, system)
            if plan.broken_rules(model) or (answer := question.answer()) is None:
                continue
        except UserError as error:
            if "utilisation=" in str(error):
                raise
            continue
        count -= 1
        yield question, answer


def assert_lawful(question: Question, answer: Prediction) -> None:
    """What holds of one answer."""
    model, plan, system, profile = question.model, question.plan, question.system, question.profile
    seconds, gpus = answer.iteration_s, plan.gpus
    # Sums.
    assert sum(answer.breakdown.values()) == pytest.approx(seconds, rel=ROUNDING)
    assert sum(answer.memory_parts.values()) == pytest.approx(answer.memory_bytes, rel=ROUNDING)
    assert min(answer.breakdown.values()) >= 0
    assert min(answer.memory_parts.values()) >= 0
    assert np.isfinite([seconds, answer.memory_bytes, answer.hfu]).all()
    assert answer.fits == (answer.memory_bytes <= 0.93 * answer.capacity_bytes) or "offloads" in answer.reason
    assert plan.pp > 1 or answer.breakdown["bubble"] <= ROUNDING * seconds
    # Rates.
    peak = profile.peak_flops
    assert 0 < answer.mfu <= answer.hfu * (1 + ROUNDING)
    assert answer.hfu <= answer.mfu * 1.5  # frozen weights: 3 forward passes in place of 2
    if plan.precision in ("bf16", "tf32"):
        assert answer.hfu <= 1
    assert answer.tflops_per_gpu * 1e12 == pytest.approx(answer.mfu * peak, rel=ROUNDING)
    assert answer.tokens_per_s_per_gpu * gpus * seconds == pytest.approx(answer.tokens, rel=ROUNDING)
    # Bounds that follow from the question alone.
    attention_in_32_bit = plan.precision == "tf32"
    fastest = max(peak, profile.peak_flops_of(plan.precision)) if not attention_in_32_bit else peak
    products = (2 if model.lora_rank else 3) * model.forward_flops().layers * model.seq_len
    if not model.lengths:
        assert seconds * gpus * fastest >= plan.global_batch * products
    if plan.options == DEFAULT_OPTIONS:
        states = 12 if plan.offload_optimizer else 0
        assert answer.memory_bytes * gpus >= (16 - states) * model.trained_parameters * (1 - ROUNDING)
        stage_weights = 2 * model.layers * model.attention_matmul_parameters / (plan.tp * plan.pp)
        assert seconds * profile.hbm_bytes_per_s >= 2 * plan.microbatches * stage_weights * 0.5
    # Other doors.
    batch = evaluate(model, PlanBatch.of([plan, plan]), system)
    assert batch.iteration_s == pytest.approx(seconds, rel=ROUNDING)
    assert batch.memory.total == pytest.approx(answer.memory_bytes, rel=ROUNDING)
    if 4 * plan.microbatches * plan.pp * plan.interleave < MOST_TASKS and not model.lengths:
        ends = [end for _, end in iteration_graph(model, plan, system).run().values()]
        assert max(ends) == pytest.approx(seconds, rel=1e-9)


COMPARED: dict[str, Callable[[float, float], bool]] = {
    "at most": lambda after, before: after <= before * (1 + ROUNDING),
    "at least": lambda after, before: after >= before * (1 - ROUNDING),
    "equal": lambda after, before: after == pytest.approx(before, rel=ROUNDING),
}


def assert_law(law: dict[str, Any], question: Question, before: Prediction) -> bool:
    """Whether the law applies, and that it holds."""
    changed = question.changed(law)
    after = changed and changed.answer()
    if after is None:
        return False
    for key, figure in (("seconds", "iteration_s"), ("bytes", "memory_bytes")):
        if key in law:
            limit = law.get("times", 1) * getattr(before, figure)
            if question.plan.ep_overlap and key == "seconds":
                # What hides dispatch in one pass lengthens another, and a pipeline feels the passes apart.
                limit *= {"at least": 0.995, "equal": 1.0, "at most": 1.005}[law[key]]
            assert COMPARED[law[key]](getattr(after, figure), limit), (
                f"{law['law']}: {figure} {getattr(before, figure)} -> {getattr(after, figure)}: {question}"
            )
    return True


def assert_all(count: int, seed: int) -> None:
    applied = dict.fromkeys((law["law"] for law in LAWS), 0)
    for question, answer in questions(count, seed):
        assert_lawful(question, answer)
        for law in LAWS:
            applied[law["law"]] += assert_law(law, question, answer)
    assert min(applied.values()) > 0, applied


def test_answers_keep_the_laws():
    assert_all(48, 1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_five_thousand_answers_keep_the_laws(seed):
    assert_all(500, 100 + seed)
