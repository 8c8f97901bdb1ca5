"""Matchings of the greatest weight against all matchings of small cases."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.solvers.pairing import best_pairs


def most(counts: tuple[int, ...], weights: list[list[float]]) -> float:
    """The greatest total weight, by trying all partners of the first thing that is left."""

    @cache
    def of(left: tuple[int, ...]) -> float:
        first = next((kind for kind, n in enumerate(left) if n), None)
        if first is None:
            return 0.0
        rest = [n - (kind == first) for kind, n in enumerate(left)]
        best = of(tuple(rest))
        for other, n in enumerate(rest):
            if n:
                after = tuple(m - (kind == other) for kind, m in enumerate(rest))
                best = max(best, weights[first][other] + of(after))
        return best

    return of(counts)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.data())
def test_no_matching_weighs_more(counts: list[int], data: st.DataObject) -> None:
    kinds = range(len(counts))
    drawn = {(a, b): data.draw(st.integers(-3, 9)) / 8 for a in kinds for b in kinds if a <= b}
    weights = [[drawn[min(a, b), max(a, b)] for b in kinds] for a in kinds]
    made = best_pairs(counts, weights)
    for kind, n in enumerate(counts):
        assert sum(m * ((a == kind) + (b == kind)) for (a, b), m in made.items()) <= n
    assert all(weights[a][b] > 0 for a, b in made)
    total = sum(weights[a][b] * n for (a, b), n in made.items())
    assert total == pytest.approx(most(tuple(counts), weights))


def test_odd_circles_need_more_than_a_bipartite_program() -> None:
    """Three things of three kinds: half a pair each would weigh 1.5, but only one pair can be made."""
    weights = [[0.0 if a == b else 1.0 for b in range(3)] for a in range(3)]
    assert sum(best_pairs([1, 1, 1], weights).values()) == 1
    assert sum(best_pairs([1000, 1000, 1000], weights).values()) == 1500
    assert best_pairs([], []) == {}
    assert best_pairs([1, 0], [[5.0, 5.0], [5.0, 5.0]]) == {}
    assert best_pairs([4], [[-1.0]]) == {}
