"""The pipeline: known results, bounds, and the recurrence against the plain task graph."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from itertime import Plan, predict
from itertime.prediction import evaluate
from itertime.schedule import FIRST, HEAVY, LAST, StageTimes, kind_column, pipeline_s
from itertime.schedule.closed_forms import (
    InterleavedPasses,
    last_stage_decides,
    middle_stages_decide,
    middle_stages_s,
)
from itertime.schedule.recurrences import gpipe_s, interleaved_s, one_f_one_b_ahead_s, one_f_one_b_s
from itertime.schedule.zero_bubble import SPLIT_SCHEDULES, split_schedule_s, units_of
from itertime.spec import PlanBatch
from itertime.timeline.task_graph import (
    Graph,
    StagePasses,
    add_pipeline,
    add_split_pipeline,
    stage_order,
)
from tests.effort import examples

seconds = st.one_of(st.just(0.0), st.floats(0.01, 10))


@st.composite
def pipelines(draw, chunks=1):
    p = draw(st.integers(2 if chunks > 1 else 1, 6))
    m = p * draw(st.integers(1, 3)) if chunks > 1 else draw(st.integers(1, 12))
    passes = st.lists(st.lists(seconds, min_size=chunks, max_size=chunks), min_size=p, max_size=p)
    return draw(passes), draw(passes), m


def graph_seconds(forward, backward, microbatches, schedule="1f1b", ahead=()):
    nothing = [[0.0] * len(forward[0])] * len(forward)
    graph = Graph()
    add_pipeline(graph, StagePasses(forward, backward, nothing, nothing, 0.0, ahead), microbatches, schedule)
    return max(end for _, end in graph.run().values())


def column(times):
    return np.array(times)[None, :, 0]


@given(pipelines())
@settings(max_examples=examples(150), deadline=None)
def test_1f1b_equals_the_task_graph(pipeline):
    forward, backward, m = pipeline
    expected = graph_seconds(forward, backward, m)
    assert one_f_one_b_s(column(forward), column(backward), m)[0] == pytest.approx(expected, rel=1e-9)


@given(st.lists(pipelines(), min_size=1, max_size=3), st.integers(0, 2**32))
@settings(max_examples=examples(80), deadline=None)
def test_1f1b_whose_stages_repeat_ahead_of_gradients_equals_the_task_graph(pipes, seed):
    """Pipelines of several depths at once; also many micro-batches, whose repeating steps are skipped."""
    rng = np.random.default_rng(seed)
    counts, depths = rng.integers(1, 60, len(pipes)), np.array([len(forward) for forward, _, _ in pipes])
    columns, expected = np.zeros((3, len(pipes), depths.max())), []
    for row, (forward, backward, _) in enumerate(pipes):
        ahead = [[float(rng.choice([0.0, rng.random()]))] for _ in forward]
        columns[:, row, : depths[row]] = np.array([forward, ahead, backward])[:, :, 0]
        whole = [[first[0] + second[0]] for first, second in zip(ahead, backward, strict=True)]
        expected.append(graph_seconds(forward, whole, int(counts[row]), ahead=ahead))
    assert one_f_one_b_ahead_s(*columns, counts, depths) == pytest.approx(expected, rel=1e-9)


@given(pipelines())
@settings(max_examples=examples(80), deadline=None)
def test_gpipe_equals_the_task_graph(pipeline):
    forward, backward, m = pipeline
    expected = graph_seconds(forward, backward, m, "gpipe")
    assert gpipe_s(column(forward), column(backward), m)[0] == pytest.approx(expected, rel=1e-9)


@given(st.integers(2, 4).flatmap(lambda chunks: pipelines(chunks=chunks)))
@settings(max_examples=examples(80), deadline=None)
def test_interleaved_equals_the_task_graph(pipeline):
    forward, backward, m = pipeline
    expected = graph_seconds(forward, backward, m)
    assert interleaved_s(np.array(forward)[None], np.array(backward)[None], m)[0] == pytest.approx(
        expected, rel=1e-9
    )


def closed_form(forward, backward, m):
    stage = np.array(forward)[:, 0] + np.array(backward)[:, 0]
    return m * stage.max() + stage.sum() - stage.max()


def holds(forward, backward):
    columns = np.array(forward), np.array(backward)
    return last_stage_decides(*columns, np.ones_like(columns[0], dtype=bool))[0]


@given(pipelines())
@settings(max_examples=examples(150), deadline=None)
def test_with_no_pass_longer_than_the_last_stages_the_closed_form_is_exact(pipeline):
    forward, backward, m = pipeline
    for passes in (forward, backward):
        passes[-1] = max(passes)
    assert holds(forward, backward)
    expected = pytest.approx(closed_form(forward, backward, m), rel=1e-12)
    assert one_f_one_b_s(column(forward), column(backward), m)[0] == expected


@given(st.integers(1, 7), st.integers(1, 15), st.integers(0, 2**32))
@settings(max_examples=examples(400), deadline=None)
def test_where_the_last_stage_decides_the_closed_form_is_exact(p, m, seed):
    """`pipeline_s` uses the closed form wherever `last_stage_decides`; half of these pipelines pass it."""
    rng = np.random.default_rng(seed)
    forward = rng.choice([0.2, 0.5, 1.0, 1.1], (p, 1)).tolist()
    backward = rng.choice([0.2, 1.0, 2.0, 2.1], (p, 1)).tolist()
    backward[-1][0] = max(backward[-1][0], max(np.array(forward) + np.array(backward))[0] - forward[-1][0])
    if holds(forward, backward):
        expected = pytest.approx(closed_form(forward, backward, m), rel=1e-12)
        assert one_f_one_b_s(column(forward), column(backward), m)[0] == expected


def test_with_the_last_stage_slowest_but_not_in_both_passes_it_is_not():
    forward, backward = np.array([[0.0, 0.0, 1.0, 0.0, 1.0]]), np.array([[0.0, 1.0, 0.0, 0.0, 0.0]])
    assert one_f_one_b_s(forward, backward, 3)[0] == 6.0
    assert closed_form(forward.T, backward.T, 3) == 5.0
    assert not holds(forward.T, backward.T)


def test_with_the_first_stage_slowest_the_closed_form_is_not():
    """Its waiting is filled with forwards of later micro-batches, so the recurrence is shorter."""
    forward, backward = np.array([[3.0, 1.0, 1.0]]), np.array([[3.0, 1.0, 1.0]])
    assert one_f_one_b_s(forward, backward, 4)[0] < 4 * 6 + 4


@given(st.integers(1, 7), st.integers(1, 300), st.integers(0, 2**32))
@settings(max_examples=examples(60), deadline=None)
def test_one_pipeline_alone_skips_what_repeats_and_loses_nothing(p, m, seed):
    """The batch takes every step; near ties make the repetition late, equal stages at once."""
    rng = np.random.default_rng(seed)
    forward, backward = (rng.choice([0.0, 1.0, 1.0001, 2.0, 3.3], (1, p)) for _ in range(2))
    twice = [np.repeat(times, 2, axis=0) for times in (forward, backward)]
    expected = one_f_one_b_s(*twice, m)[0]
    assert one_f_one_b_s(forward, backward, m)[0] == pytest.approx(expected, rel=1e-12)


@given(st.integers(2, 6), st.integers(2, 4), st.integers(1, 40), st.integers(0, 2**32))
@settings(max_examples=examples(60), deadline=None)
def test_one_interleaved_pipeline_alone_does_so_too(p, chunks, rounds, seed):
    rng = np.random.default_rng(seed)
    forward, backward = (rng.choice([0.0, 1.0, 1.0001, 2.0, 3.3], (1, p, chunks)) for _ in range(2))
    twice = [np.repeat(times, 2, axis=0) for times in (forward, backward)]
    expected = interleaved_s(*twice, p * rounds)[0]
    assert interleaved_s(forward, backward, p * rounds)[0] == pytest.approx(expected, rel=1e-12)


def ends(seed, scale):
    """Passes of equal chunks with something at the ends; about half of them pass `last_chunk_decides`."""
    rng = np.random.default_rng(seed)
    forward, backward = rng.uniform(0.2, 3, (2, 1))
    most = scale * min(forward[0], backward[0])
    low, high = -min(most, forward[0]), -min(most, backward[0])
    extra = rng.uniform([0, high, low, 0], most, (1, 4)).T
    return InterleavedPasses(forward, backward, *extra)


def written_out(passes, p, v):
    forward, backward = (np.full((1, p, v), one[0]) for one in (passes.forward, passes.backward))
    forward[0, 0, 0] += passes.first_forward[0]
    backward[0, 0, 0] += passes.first_backward[0]
    forward[0, -1, -1] += passes.last_forward[0]
    backward[0, -1, -1] += passes.last_backward[0]
    return forward, backward


@given(
    st.integers(2, 7),
    st.integers(2, 5),
    st.integers(1, 6),
    st.integers(0, 2**32),
    st.sampled_from([0.05, 0.3, 1.0, 3.0]),
)
@settings(max_examples=examples(400), deadline=None)
def test_where_the_last_chunk_decides_the_closed_form_is_exact(p, v, rounds, seed, scale):
    passes = ends(seed, scale)
    form = passes.seconds(np.array([p]), np.array([v]), np.array([p * rounds]))[0]
    if passes.last_chunk_decides()[0]:
        exact = interleaved_s(*written_out(passes, p, v), p * rounds)[0]
        assert form == pytest.approx(exact, rel=1e-12)


def shorter(seed, scale):
    """Passes of equal chunks with shorter ones at the model's ends; the last one is seldom longer."""
    rng = np.random.default_rng(seed)
    forward, backward = rng.choice([1.0, 2.0], (2, 1)) if seed % 3 == 0 else rng.uniform(0.2, 3, (2, 1))
    passes = np.array([forward, backward] * 2)
    extra = -scale * rng.random((4, 1)) * passes
    extra[2] *= 1 if seed % 4 else -1
    return InterleavedPasses(forward, backward, *extra)


@given(
    st.integers(2, 7),
    st.integers(2, 5),
    st.integers(1, 6),
    st.integers(0, 2**32),
    st.sampled_from([0.02, 0.3, 1.0]),
)
@settings(max_examples=examples(400), deadline=None)
def test_with_shorter_ends_the_closed_form_is_exact_too(p, v, rounds, seed, scale):
    passes = shorter(seed, scale)
    devices, microbatches = np.array([p]), np.array([p * rounds])
    known = passes.last_chunk_decides() | passes.middle_may_decide(devices, microbatches)
    assert known[0] or p == 2
    if known[0]:
        exact = interleaved_s(*written_out(passes, p, v), p * rounds)[0]
        form = passes.seconds(devices, np.array([v]), microbatches)[0]
        assert form == pytest.approx(exact, rel=1e-12)


@given(st.integers(3, 8), st.integers(1, 12), st.integers(0, 2**32), st.sampled_from([0.02, 0.3, 1.0]))
@settings(max_examples=examples(400), deadline=None)
def test_1f1b_with_shorter_ends_has_a_closed_form(p, m, seed, scale):
    forward, backward = written_out(shorter(seed, scale), p, 1)
    kinds = [0, 1, p - 1]
    ends = forward[0, kinds], backward[0, kinds]
    if middle_stages_decide(*ends)[0]:
        form = middle_stages_s(*ends, np.array([p]), np.array([m]))[0]
        exact = one_f_one_b_s(forward[:, :, 0], backward[:, :, 0], m)[0]
        assert form == pytest.approx(exact, rel=1e-12)


def test_1f1b_with_a_longer_end_has_another():
    for longer in (0, 2):
        forward = np.array([[1.0], [1.0], [1.0]])
        forward[longer] = 1.5
        assert not middle_stages_decide(forward, np.ones((3, 1)))[0]


def test_the_conditions_of_the_closed_form_are_met_often_and_not_idle():
    """Without them it is wrong: too short where the first chunk is the longest."""
    cases = [(seed, scale) for seed in range(200) for scale in (0.3, 3.0)]
    met = [bool(ends(*case).last_chunk_decides()[0]) for case in cases]
    assert 0.2 < np.mean(met) < 0.9
    first = InterleavedPasses(*np.array([[1.0], [1.0], [0.9], [0.0], [0.1], [0.1]]))
    assert not first.last_chunk_decides()[0]
    form = first.seconds(np.array([4]), np.array([2]), np.array([16]))[0]
    assert interleaved_s(*written_out(first, 4, 2), 16)[0] > 1.05 * form


def random_stages(seed, plans):
    """Plans of all schedules, whose first and last stages take longer or shorter than the middle ones."""
    rng = np.random.default_rng(seed)
    depth, interleave = rng.integers(1, 7, plans), rng.choice([1, 1, 2, 3], plans)
    interleave[depth == 1] = 1
    light = np.where(rng.random(plans) < 0.3, np.maximum(depth - 3, 0), 0)
    first, heavy = np.minimum(depth - 1, 1), np.maximum(depth - 2, 0) - light
    count = np.array([first, heavy, light, np.ones_like(depth)])
    lacking = rng.choice([0.0, 0.02, 0.3], plans) * rng.random((4, plans))
    lacking[HEAVY] = 0.0
    hop = rng.choice([0.0, 0.2], plans) * (depth > 1)
    kinds = kind_column(4)
    passes = []
    for end in (LAST, FIRST):
        ends = rng.choice([0.0, 0.1, 1.0], plans) * rng.random((2, plans))
        passes.append(
            {
                "gemm": rng.uniform(1, 3, plans) * (1 - lacking),
                "embedding": np.where(kinds == FIRST, ends[0], 0.0),
                "head": np.where(kinds == LAST, ends[1], 0.0),
                "p2p": hop * np.where(kinds == end, interleave - 1, interleave),
            }
        )
    gpipe = (interleave == 1) & (rng.random(plans) < 0.2)
    return StageTimes(*passes, count, interleave), depth * rng.integers(1, 5, plans), gpipe


@given(st.integers(0, 2**32))
@settings(max_examples=examples(40), deadline=None)
def test_every_case_of_the_time_of_a_pipeline_equals_the_task_graph(seed):
    """Whichever of its cases holds, at once for plans of all schedules."""
    stages, microbatches, gpipe = random_stages(seed, plans=20)
    time = pipeline_s(stages, microbatches, gpipe)
    for row, count in enumerate(microbatches):
        chunks = stages.chunks(np.array([row]), int(stages.interleave[row]))
        passes = chunks.forward + chunks.send_forward, chunks.backward + chunks.send_backward
        schedule = "gpipe" if gpipe[row] else "1f1b"
        expected = graph_seconds(*(seconds[0].tolist() for seconds in passes), int(count), schedule)
        assert time.run_s[row] + time.bubble_s[row] == pytest.approx(expected, rel=1e-9)


def test_many_pipelines_of_different_shapes_at_once_equal_each_alone():
    rng = np.random.default_rng(7)
    p, m = rng.integers(1, 7, 50), rng.integers(1, 15, 50)
    forward, backward = rng.random((50, 6)), rng.random((50, 6))
    together = one_f_one_b_s(forward, backward, m, p)
    for row in range(50):
        width = p[row]
        alone = one_f_one_b_s(forward[row : row + 1, :width], backward[row : row + 1, :width], m[row])
        assert together[row] == pytest.approx(alone[0], rel=1e-14)


@pytest.mark.parametrize(("p", "m", "v"), [(2, 2, 2), (4, 8, 2), (8, 16, 3), (3, 9, 4)])
def test_interleaving_divides_the_bubble_by_the_number_of_chunks(p, m, v):
    """Narayanan et al. (SC'21), section 2.2.2: bubble fraction (p - 1) / (v m)."""
    total = interleaved_s(np.full((1, p, v), 1.0 / v), np.full((1, p, v), 2.0 / v), m)[0]
    assert (total - 3 * m) / (3 * m) == pytest.approx((p - 1) / (v * m), rel=1e-12)


def test_gpipe_and_1f1b_have_the_same_bubble_with_equal_stages():
    """Narayanan et al. (SC'21), section 2.2.1: (p - 1)(tf + tb) for both."""
    forward, backward = np.full((1, 4), 1.0), np.full((1, 4), 2.0)
    assert gpipe_s(forward, backward, 8)[0] == pytest.approx((8 + 3) * 3)
    assert one_f_one_b_s(forward, backward, 8)[0] == pytest.approx((8 + 3) * 3)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("chunks", [1, 2])
def test_an_order_runs_every_pass_once_and_a_forward_before_its_backward(schedule, chunks):
    for stage in range(4):
        order = stage_order(schedule, stage, 4, 8, chunks)
        assert len(order) == len(set(order)) == 2 * 8 * chunks
        for _, chunk, microbatch in order:
            assert order.index(("forward", chunk, microbatch)) < order.index(("backward", chunk, microbatch))


def test_1f1b_holds_at_most_as_many_micro_batches_as_stages_remain():
    for stage in range(4):
        held = peak = 0
        for kind, _, _ in stage_order("1f1b", stage, 4, 20):
            held += 1 if kind == "forward" else -1
            peak = max(peak, held)
        assert peak == 4 - stage


def equal_stages_s(schedule, p, m, passes):
    """Seconds with the same passes, F, B and W, of every chunk."""
    chunks = np.ones((1, p, 1 if schedule == "zb-h1" else 2))
    return split_schedule_s(schedule, *(seconds * chunks for seconds in passes), m)


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (6, 14), (8, 20)])
@pytest.mark.parametrize("passes", [(1, 1, 1), (2, 3, 1), (1, 2, 1.5), (3, 3, 2), (1, 1.5, 2), (2, 1, 3)])
def test_schedules_that_split_backward_passes_have_the_bubbles_of_their_papers(p, m, passes):
    """Equal stages. Qi et al. (2024), table 2, with (p - 1) max(F + B - W, B, F), where only W <= F and
    B >= F are its case; DeepSeek-V3 (2024), table 2, (p / 2 - 1)(F&B + B - 3 W) with B + W as its B, where
    F = B and W is no longer; the V (Qi et al., section 6) where all three are equal.
    """
    f, b, w = passes
    found = equal_stages_s("zb-h1", p, m, passes).last[0] - m * (f + b + w)
    assert found == pytest.approx((p - 1) * max(f + b - w, b, f))
    both_ways = equal_stages_s("dualpipe", p, m, passes)
    if f == b >= w:
        bubble = (p / 2 - 1) * ((f + b + w) + (b + w) - 3 * w)
        assert both_ways.last[0] - m * (f + b + w) == pytest.approx(bubble)
        assert both_ways.last[0] == pytest.approx(both_ways.first[0])
    if f == b == w:  # no device waits between its passes; the last one begins p - 1 passes late
        v_shaped = equal_stages_s("zb-v", p, m, passes)
        assert v_shaped.first[0] == pytest.approx(m * 6 * f)
        assert v_shaped.last[0] == pytest.approx((m * 6 + p - 1) * f)


def test_no_order_of_two_stages_beats_zb_h1_with_as_many_micro_batches_in_flight():
    """Brute force: all orders of F, B and W on both devices, at most two micro-batches between F and W."""
    passes, m = {"F": 1.0, "B": 1.0, "W": 1.0}, 3

    def orders():
        for order in set(itertools.permutations("FFFBBBWWW")):
            held = [order[:n].count("F") - order[:n].count("W") for n in range(10)]
            ahead = [order[:n].count("B") - order[:n].count("W") for n in range(10)]
            kept = [order[:n].count("F") - order[:n].count("B") for n in range(10)]
            if min(ahead) >= 0 and min(kept) >= 0 and max(held) <= 2:
                yield order

    def total_s(first, second):
        ends, free, heads, queues = {}, [0.0, 0.0], [0, 0], (first, second)
        while heads != [9, 9]:
            before = list(heads)
            for device, queue in enumerate(queues):
                while heads[device] < 9:
                    kind = queue[heads[device]]
                    number = queue[: heads[device]].count(kind)
                    needs = {"F": ("F", 0), "B": ("B", 1), "W": ("B", device)}[kind]
                    has_input = (device, kind) in ((0, "F"), (1, "B"))
                    source = None if has_input else (*needs, number)
                    if source is not None and source not in ends:
                        break
                    free[device] = max(free[device], ends.get(source, 0.0)) + passes[kind]
                    ends[kind, device, number] = free[device]
                    heads[device] += 1
            if heads == before:
                return np.inf
        return max(free)

    found = list(orders())
    best = min(total_s(first, second) for first in found for second in found)
    assert equal_stages_s("zb-h1", 2, m, (1, 1, 1)).last[0] == best == 3 * m + 1


@given(st.sampled_from(SPLIT_SCHEDULES), st.integers(1, 3), st.integers(0, 6), st.integers(0, 2**32))
@settings(max_examples=examples(60), deadline=None)
def test_schedules_that_split_backward_passes_equal_the_task_graph(schedule, pairs, extra, seed):
    """For one plan and for several at once, whatever each chunk takes."""
    p = 2 * pairs
    m = 2 * p + 2 * extra if schedule == "dualpipe" else 1 + extra
    rng = np.random.default_rng(seed)
    chunks = 1 if schedule == "zb-h1" else 2
    forward, backward, weight = rng.choice([0.5, 1, 2.5], (3, 2, p, chunks)) * rng.random((3, 2, p, chunks))
    together = split_schedule_s(schedule, forward, backward, weight, m)
    for row in range(2):
        lists = [seconds[row].tolist() for seconds in (forward, backward, weight)]
        nothing = [[0.0] * chunks] * p
        graph = Graph()
        last = add_split_pipeline(
            graph, StagePasses(*lists[:2], nothing, nothing, weight=lists[2]), m, schedule
        )
        times = graph.run()
        expected = max(end for _, end in times.values()), times[last[0]][1]
        alone = split_schedule_s(
            schedule, *(seconds[row : row + 1] for seconds in (forward, backward, weight)), m
        )
        assert (alone.last[0], alone.first[0]) == pytest.approx(expected, rel=1e-9)
        assert together.last[row] == pytest.approx(alone.last[0], rel=1e-12)


@pytest.mark.parametrize(("schedule", "held"), [("zb-h1", 6), ("zb-v", 12), ("dualpipe", 7)])
def test_devices_hold_as_many_micro_batches_as_memory_charges(schedule, held):
    """From their forward pass until their gradients of weights: p, in halves of a stage, and p + 1."""
    peaks = []
    for device in range(6):
        passes = [each for unit in units_of(schedule, device, 6, 24) for each in unit]
        assert len(passes) == len(set(passes)) == 3 * 24 * (2 if schedule == "zb-v" else 1)
        steps = [{"forward": 1, "backward": 0, "weight": -1}[each.kind] for each in passes]
        peaks.append(max(np.cumsum(steps)))
    assert max(peaks) == held


def test_plans_with_and_without_whole_backward_passes_are_evaluated_together():
    plan = Plan(tp=1, pp=8, dp=1, micro_batch=1, global_batch=16)
    plans = [replace(plan, schedule=schedule) for schedule in ("1f1b", "zb-h1", "gpipe", "zb-h1")]
    together = evaluate("llama2-7b", PlanBatch.of(plans), "dgx-h100").iteration_s
    assert together.tolist() == [predict("llama2-7b", each, "dgx-h100").iteration_s for each in plans]


def test_tasks_in_a_circle_are_an_error_not_an_endless_loop():
    graph = Graph()
    graph.add("a", 0, "compute", 1.0, ["b"])
    graph.add("b", 1, "compute", 1.0, ["a"])
    with pytest.raises(ValueError, match="circle"):
        graph.run()
