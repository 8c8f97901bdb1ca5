"""The shipped models have the published parameters; plans and batches of plans; tables of sample lengths."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from experiments.evidence.build_lengths import class_table
from experiments.evidence.build_lengths import main as build
from itertime import ModelSpec, Plan, PlanBatch, list_models, load_model, load_system, predict
from itertime.costs.passes import MICRO_BATCH_COLUMNS
from itertime.errors import UserError
from itertime.spec import RECOMPUTE, Lengths, approximations_of, list_lengths, load_lengths, refusal_of
from itertime.spec.lengths import LENGTHS
from tests.effort import examples
from tests.tables import TABLES

NAMES = list_models()
SYSTEM = load_system("dgx-h100")
CLOSE = 0.005
EMBEDDING = "the published count leaves out the token embedding"
OTHERWISE, ACTIVE = (TABLES[f"{kind}parameters counted otherwise"] for kind in ("", "active "))
"""Largest relative difference, and why."""


def published(text: str) -> tuple[float, float]:
    """The number of "8.03B", and half a unit of its last digit."""
    unit = {"M": 1e6, "B": 1e9, "T": 1e12}[text[-1]]
    decimals = len(text[:-1].partition(".")[2])
    return float(text[:-1]) * unit, 0.5 * 10**-decimals * unit


def assert_as_published(count: int, text: str, largest: float | None) -> None:
    expected, rounding = published(text)
    allowed = max(CLOSE * expected, rounding) if largest is None else largest * expected
    assert abs(count - expected) <= allowed, f"{count / expected - 1:.2%} off"


def test_there_are_today_s_models() -> None:
    assert len(NAMES) >= 70
    families = "llama3 llama3.1 llama3.2 llama3.3 llama4 qwen2.5 qwen3 mistral mixtral deepseek gemma2 gemma3"
    for family in [*families.split(), "gpt-oss", "nemotron", "falcon", "opt", "bloom", "gpt-neox", "phi"]:
        assert [name for name in NAMES if name.startswith(f"{family}-")], family


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_those_published(name: str) -> None:
    model = load_model(name)
    largest, _ = OTHERWISE.get(name, (None, ""))
    if name.startswith("megatron-"):
        largest = 0.03  # table 1 of SC'21 names models roughly
    assert model.source
    assert_as_published(model.parameters, model.parameters_published, largest)


@pytest.mark.parametrize("name", [name for name in NAMES if load_model(name).experts > 1])
def test_active_parameters_are_those_published(name: str) -> None:
    model = load_model(name)
    largest, why = ACTIVE.get(name, (None, ""))
    count = model.active_parameters - (model.vocab * model.hidden if why == EMBEDDING else 0)
    assert_as_published(count, model.active_parameters_published, largest)


def test_exceptions_are_needed() -> None:
    for name, (largest, _) in OTHERWISE.items():
        expected, rounding = published(load_model(name).parameters_published)
        error = abs(load_model(name).parameters - expected)
        assert max(CLOSE * expected, rounding) < error <= largest * expected


@pytest.mark.parametrize("name", NAMES)
def test_every_model_is_predicted_or_refused(name: str) -> None:
    """One plan of each, on one GPU: memory does not matter here."""
    model, plan = load_model(name), Plan(1, 1, 1, 1, 1)
    if refusal_of(model):
        with pytest.raises(UserError, match=f"model {name} cannot be predicted: "):
            predict(model, plan, SYSTEM)
    else:
        assert 0 < predict(model, plan, SYSTEM).mfu < 1


def test_latent_attention_by_hand() -> None:
    """DeepSeek-V3 (2024), section 4.2: weights of one layer's attention."""
    model = load_model("deepseek-v3")
    queries = 7168 * 1536 + 1536 * 128 * (128 + 64)
    keys_values = 7168 * (512 + 64) + 512 * 128 * (128 + 128)
    assert model.attention_matmul_parameters == queries + keys_values + 128 * 128 * 7168


def test_windows_of_unfused_attention_are_stated_and_refused_where_they_matter() -> None:
    """Gemma 3 27B: 10 of 62 layers attend to everything, 52 to 1,024 tokens."""
    assert not any("reaches back" in text for text in approximations_of(load_model("gemma3-27b")))
    model = replace(load_model("gemma3-27b"), attention="core")
    short, long = replace(model, seq_len=1024), replace(model, seq_len=32768)
    assert not any("reaches back" in text for text in approximations_of(short))
    (text,) = [text for text in approximations_of(model) if "reaches back" in text]
    # Multiply-adds of a layer and token: in all scores, in those of the window, in the weights.
    full, kept = 8192 * 4096, (1024 * 8192 - 1024**2 / 2) / 8192 * 2 * 4096
    actual = model.layer_matmul_parameters + (52 * kept + 10 * full) / 62
    assert f"{(model.layer_matmul_parameters + full) / actual - 1:.1%}" in text
    assert "52 of the 62 layers" in text
    assert refusal_of(model) == ""
    assert "choose a shorter seq_len" in refusal_of(long)


def test_what_fields_state_is_told() -> None:
    plain = ModelSpec("m", 2, 64, 4, 100, 16)
    assert approximations_of(plain) == ()
    told = replace(plain, experts=4, approximations=("No sinks.",))
    assert [text.split()[0] for text in approximations_of(told)] == ["All", "No"]
    assert approximations_of(replace(told, load_imbalance=1.5)) == ("No sinks.",)
    latent = replace(plain, attention="flash", latent_kv=32, rope_head_dim=8)
    assert [text.split()[0] for text in approximations_of(latent)] == ["Tensor-parallel"]


def test_flops_are_those_of_sc21_equation_3_without_recomputation():
    model, batch = load_model("megatron-145.6b"), 2304
    s, layers, h, vocab = model.seq_len, model.layers, model.hidden, model.vocab
    expected = 72 * batch * s * layers * h**2 * (1 + s / (6 * h) + vocab / (12 * layers * h))
    assert model.flops_per_iteration(batch) == pytest.approx(expected, rel=1e-12)


def test_a_window_limits_the_scores_that_count_and_masked_ones_never_outweigh_the_products():
    """Gemma 3: 8 of 48 layers reach all tokens. AI-Hypercomputer/maxtext PR 2009 counts the same way."""
    model = load_model("gemma3-12b").with_seq_len(131_072)
    keys, width = 8 * 131_072 + 40 * 1024, 2 * 4096
    products = 48 * model.layer_matmul_parameters + model.vocab * model.hidden
    assert model.flops_per_iteration(1) == 6 * 131_072 * (products + keys * width)
    longest = load_model("llama3-8b").with_seq_len(2**20).forward_flops()
    assert longest.masked > 18 * (longest.layers + longest.head)
    assert longest.counted_scores == longest.scores + longest.layers + longest.head
    encoder = load_model("bert-large").with_seq_len(2**20).forward_flops()  # no mask
    assert encoder.masked == 0


def test_grouped_heads_and_gated_mlp_count_their_weights():
    model = load_model("llama2-70b")
    assert model.kv_hidden == 1024
    assert model.layer_matmul_parameters == 2 * 8192 * (8192 + 1024) + 3 * 8192 * 28672


def test_a_model_file_is_named_after_itself(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text("layers: 2\nhidden: 64\nheads: 4\nvocab: 100\nseq_len: 16\n")
    assert load_model(str(path)) == ModelSpec("tiny", 2, 64, 4, 100, 16)


LARGE = load_model("megatron-39.1b")  # 48 layers, 64 heads, s 2048


@pytest.mark.parametrize("field", ["tp", "recompute", "zero_stage", "bucket_bytes"])
def test_of_a_long_value_the_beginning_is_shown(field):
    plan = replace(Plan(tp=1, pp=1, dp=1, micro_batch=1, global_batch=1), **{field: "x" * 100_000})
    (rule,) = plan.broken_rules(LARGE)
    assert rule.startswith(f"{field}='xxx")
    assert len(rule) < 200


def test_keys_and_values_may_be_shared_by_tensor_parallel_ranks():
    llama = load_model("llama2-70b")  # 8 key/value heads
    assert Plan(16, 1, 1, 1, 1).broken_rules(llama) == []
    assert Plan(1, 1, 1, 1, 1).broken_rules(llama) == []


def test_a_balanced_split_needs_no_divisor():
    assert Plan(8, 5, 1, 1, 8, split="balanced").broken_rules(LARGE) == []


MODULES = ("core_attn", "layernorm,moe_act", "mlp,moe,shared_experts")
LISTS = [
    ("7,8,9,8", "7,8,9,8"),
    ("Et*7|(t*8|)*2t*9L", "7,8,8,9"),
    ("E(tt|)*3, t | L", "2,2,2,1,0"),
    ("E|(t|)*2L", "E|(t|)*2L"),
]


@pytest.mark.parametrize(("text", "split"), LISTS)
def test_a_layout_string_is_the_list_of_its_layers(text, split):
    plan = Plan(1, len(split.split(",")), 1, 1, 8, split=text)
    assert plan.split == split
    assert PlanBatch.of([plan]).plan(0).split in (split, "even")


def test_equal_numbers_are_the_even_split_and_others_keep_the_work():
    model, h100 = load_model("llama3-8b"), load_system("dgx-h100")
    for pp, interleave, sizes in ((4, 1, "8,8,8,8"), (2, 2, "8,8,8,8")):
        plan = Plan(1, pp, 1, 1, 16, interleave=interleave)
        even, listed = (predict(model, each, h100) for each in (plan, replace(plan, split=sizes)))
        assert listed.iteration_s == pytest.approx(even.iteration_s, rel=1e-12)
        assert listed.memory_bytes == even.memory_bytes
    plan = Plan(1, 4, 1, 1, 16, split="7,8,9,8")
    light, heavy = (predict(model, replace(plan, split=each), h100) for each in ("7,8,9,8", "9,8,8,7"))
    assert light.memory_parts["weights"] < heavy.memory_parts["weights"]
    assert light.model_flops == heavy.model_flops


VALUES = TABLES["values of plans"] | {"recompute": (*RECOMPUTE, *MODULES)}
PLANS = st.builds(Plan, **{name: st.sampled_from(values) for name, values in VALUES.items()})


@given(st.lists(PLANS, min_size=1, max_size=5))
def test_a_batch_returns_its_plans(several):
    batch = PlanBatch.of(several)
    stated = [replace(plan, etp=None if plan.expert_tp == plan.tp else plan.expert_tp) for plan in several]
    assert [batch.plan(row) for row in range(len(batch))] == stated
    assert list(batch.gpus) == [plan.gpus for plan in several]
    assert list(batch.microbatches) == [plan.microbatches for plan in several]


TWO_RANKS = PlanBatch.of([Plan(tp=2, pp=1, dp=4, micro_batch=1, global_batch=64)])
SWITCHES = {name for name in MICRO_BATCH_COLUMNS if getattr(TWO_RANKS, name).dtype == bool}
# Small numbers so that values repeat, large ones so that the keys exceed 64 bits.
NUMBERS = st.one_of(st.integers(0, 9), st.integers(0, 10**15))


def batch(rows: list[dict[str, int]]) -> PlanBatch:
    """Plans with any values in the named columns, including values that no `Plan` allows."""
    columns = {
        name: np.array([row[name] for row in rows], dtype=bool if name in SWITCHES else np.int64)
        for name in MICRO_BATCH_COLUMNS
    }
    return replace(TWO_RANKS.take(np.zeros(len(rows), dtype=np.int64)), **columns)


ROW = st.fixed_dictionaries(
    {name: st.integers(0, 1) if name in SWITCHES else NUMBERS for name in MICRO_BATCH_COLUMNS}
)
BASE = dict.fromkeys(MICRO_BATCH_COLUMNS, 0) | {"tp": 1, "micro_batch": 1, "recompute": 5, "cp": 1, "ep": 1}


@given(st.lists(ROW, min_size=1, max_size=30))
# A sixth recompute mode with micro-batch 1 is not the first mode with micro-batch 2.
@example([BASE, BASE | {"micro_batch": 2, "recompute": 0}])
def test_plans_are_the_same_work_only_if_they_agree_in_every_named_column(rows):
    first, where = batch(rows).distinct(MICRO_BATCH_COLUMNS)
    keys = [tuple(row[name] for name in MICRO_BATCH_COLUMNS) for row in rows]
    assert [keys[first[place]] for place in where] == keys
    assert [keys[row] for row in first] == sorted(set(keys))
    assert first.tolist() == [keys.index(key) for key in sorted(set(keys))]


@given(ROW, st.sampled_from(MICRO_BATCH_COLUMNS), NUMBERS)
def test_two_plans_that_differ_in_one_column_are_different_work(row, name, value):
    value = 1 - row[name] if name in SWITCHES else value + (value == row[name])
    assert len(batch([row, row | {name: value}]).distinct(MICRO_BATCH_COLUMNS)[0]) == 2


def test_no_plan_and_no_column_are_no_error():
    assert [len(found) for found in batch([]).distinct(MICRO_BATCH_COLUMNS)] == [0, 0]
    first, where = batch([BASE] * 3).distinct(())
    assert (first.tolist(), where.tolist()) == ([0], [0, 0, 0])


# Tables of lengths


HISTOGRAM = Path("mlperf") / "wikipedia_length_histogram_512.csv"


def write(folder: Path, text: str, name: str = "lengths.csv") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_histogram_becomes_shares(tmp_path: Path) -> None:
    lengths = load_lengths(write(tmp_path, "tokens,sequences\n2,1\n3,0\n5,3\n"))
    assert (lengths.name, lengths.tokens, lengths.shares) == ("lengths", (2, 5), (0.25, 0.75))
    assert lengths.source == str(tmp_path / "lengths.csv")
    assert (lengths.mean, lengths.mean_square, lengths.longest) == (4.25, 19.75, 5)
    assert [lengths.quantile(q) for q in (0, 0.25, 0.26, 1)] == [2, 2, 5, 5]


def test_shares_and_classes_are_read_too(tmp_path: Path) -> None:
    shares = load_lengths(write(tmp_path, "share,tokens\n0.25,2\n0.75,5\n"))
    assert (shares.tokens, shares.shares) == ((2, 5), (0.25, 0.75))
    classes = load_lengths(
        write(tmp_path, "# why\nfirst,last,mean,share\n1,3,2.25,0.5\n9,9,9,0.5\n", "c.csv")
    )
    assert classes.tokens == (1, 2, 3, 9)
    assert classes.shares == pytest.approx((0.5 * 5 / 24, 0.5 / 3, 0.5 * 11 / 24, 0.5))
    assert classes.mean == pytest.approx((2.25 + 9) / 2)


HEAD = "tokens,sequences\n"


@given(st.text("0123456789,-.e\n tokensquc", max_size=60) | st.text(max_size=20))
def test_any_text_is_a_table_or_told(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "l.csv"
    path.write_text(HEAD + text, encoding="utf-8", newline="")
    try:
        lengths = load_lengths(str(path))
    except UserError as error:
        told = str(error)
        assert "l.csv" in told
        return
    assert 1 <= lengths.tokens[0] <= lengths.mean <= lengths.longest


def test_the_shipped_table_is_small_and_has_a_source() -> None:
    assert list_lengths() == ["wikipedia-512"]
    text = (LENGTHS / "wikipedia-512.csv").read_text()
    assert len(text.splitlines()) < 64
    assert "python -m experiments.evidence.build_lengths" in text
    assert "graphcore/examples @ 2d8b5653" in text
    lengths = load_lengths("wikipedia-512", 512)
    assert lengths.source == "lengths/wikipedia-512.csv of itertime"
    assert lengths.longest == 512
    assert lengths.shares[-1] == pytest.approx(0.234, abs=5e-4)  # published: 23.4 %


def test_the_shipped_table_follows_from_the_histogram(shared_dir: Path, tmp_path: Path) -> None:
    """The program's own table: mean, mean square and the share at 512 tokens are those of the histogram."""
    histogram = shared_dir / "data" / HISTOGRAM
    if not histogram.is_file():
        pytest.skip(f"no histogram of lengths at {histogram}")
    assert build([str(histogram), "-o", str(tmp_path / "l.csv")]) == 0
    assert (tmp_path / "l.csv").read_text() == (LENGTHS / "wikipedia-512.csv").read_text()
    exact, shipped = load_lengths(str(histogram)), load_lengths("wikipedia-512")
    assert shipped.mean == pytest.approx(exact.mean, rel=1e-6)
    assert shipped.mean_square == pytest.approx(exact.mean_square, rel=1e-5)
    assert shipped.shares[-1] == pytest.approx(exact.shares[-1], rel=1e-8)
    far = max(abs(shipped.quantile(q) - exact.quantile(q)) for q in np.linspace(0, 1, 201))
    assert far <= 1


@settings(max_examples=examples(50))
@given(
    counts=st.dictionaries(st.integers(1, 300), st.integers(1, 10**6), min_size=1), classes=st.integers(1, 80)
)
def test_classes_keep_mean_and_share(
    tmp_path_factory: pytest.TempPathFactory, counts: dict[int, int], classes: int
) -> None:
    """Of any histogram: the mean is kept, also with gaps and peaks."""
    folder = tmp_path_factory.mktemp("classes")
    rows = "".join(f"{tokens},{count}\n" for tokens, count in sorted(counts.items()))
    exact = load_lengths(write(folder, HEAD + rows))
    classed = load_lengths(write(folder, class_table(exact, classes), "c.csv"))
    assert classed.mean == pytest.approx(exact.mean, rel=1e-5)
    peaks = [tokens for tokens, share in zip(exact.tokens, exact.shares, strict=True) if share >= 1 / classes]
    for tokens in peaks:
        share = classed.shares[classed.tokens.index(tokens)]
        assert share == pytest.approx(exact.shares[exact.tokens.index(tokens)], abs=1e-8)


def test_equal_tables_are_one_key() -> None:
    one, same = (Lengths("a", "b", (1, 2), (0.5, 0.5)) for _ in range(2))
    assert len({one, same, Lengths("a", "b", (1, 2), (0.4, 0.6))}) == 2
