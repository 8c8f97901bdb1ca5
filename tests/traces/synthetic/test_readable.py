"""Whatever is generated can be read: a recipe gives a valid trace, or an error that names what to change."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from itertime.errors import UserError
from traces import read_trace, write_trace
from traces.summary import demand, load_of
from traces.synthetic import Recipe, generate
from traces.synthetic.arrivals import ARRIVALS

magnitudes = st.floats(-32, 32).map(lambda exponent: 10.0**exponent)
laws = st.one_of(
    magnitudes.map(lambda mean_s: {"exponential": {"mean_s": mean_s}}),
    st.fixed_dictionaries(dict.fromkeys(("median_s", "sigma", "min_s", "max_s"), magnitudes)).map(
        lambda law: {"log_normal": law}
    ),
)
sizes = st.builds(
    lambda law, gpus: {"gpus": gpus, "share": 1, **law}, laws, st.integers(1, 64) | st.integers(1, 10**20)
)
rules = st.none() | st.builds(
    lambda multiplier, multiple, batch: {
        "source": "test",
        "gpus_multiple_of": multiple,
        "sizes": [
            {
                "gpus": [1, 10**7],
                "choices": [{"model": "gpt3-1.3b", "global_batch": batch, "gpu_multiplier": multiplier}],
            }
        ],
    },
    st.just(8) | st.integers(1, 10**21),
    st.just(1) | st.integers(1, 10**21),
    st.just(512) | st.integers(1, 10**12),
)
factors = st.tuples(magnitudes, magnitudes).map(lambda pair: f"{min(pair):g}:{max(pair):g}")
recipes = st.fixed_dictionaries(
    {
        "load": magnitudes,
        "arrivals": st.sampled_from(ARRIVALS),
        "deadlines": st.just("none") | factors,
        "jobs": st.integers(1, 12),
    }
)
LONG = {"gpus": 1, "share": 1, "exponential": {"mean_s": 3.6e12}}
SHORT = {"gpus": 1, "share": 1, "exponential": {"mean_s": 1e-3}}


@given(size=sizes, rule=rules, recipe=recipes)
@example(LONG, None, {"load": 1.0, "arrivals": "poisson", "deadlines": "none", "jobs": 3})
@example(SHORT, None, {"load": 1e-3, "arrivals": "bursty", "deadlines": "1:1e9", "jobs": 12})
def test_what_is_generated_can_be_read(
    size: dict[str, Any], rule: dict[str, Any] | None, recipe: dict[str, Any]
) -> None:
    with tempfile.TemporaryDirectory() as home:
        folder, named = Path(home), "none"
        (folder / "sizes.json").write_text(json.dumps({"source": "test", "sizes": [size]}))
        if rule is not None:
            named = str(folder / "rules.json")
            Path(named).write_text(json.dumps(rule))
        try:
            made, report = generate(Recipe(**recipe, gpus=64, sizes=str(folder / "sizes.json"), rules=named))
        except UserError:
            return
        write_trace(made, folder / "trace.csv")
        back = read_trace(folder / "trace.csv")
    assert back == made
    found = load_of(demand(back), 64)
    assert found == report["load"]
    if found is not None:
        assert found == pytest.approx(recipe["load"], rel=1e-3)
