"""Packing: several samples share a row of `seq_len` tokens, and attend to themselves alone.

Shortest-pack-first histogram packing (Krell et al. 2021, arXiv 2107.02027, section 3 and its appendix): the
lengths of a histogram, from the longest to the shortest, are added to the open pack that is filled least,
if they fit there. A pack is closed when it has the most samples allowed. Sequences of one length move
together, so the work depends on the number of different lengths, not on that of sequences.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain

from itertime.spec import Lengths

Weighted = tuple[float, tuple[int, ...]]  # share of the sequences, lengths in the pack

MOST_SAMPLES = 16
"""Samples of a pack, at most. MLPerf's Wikipedia data then fills rows with 1.99 samples, as its packed
submissions do, which have 2 on average.
"""


@dataclass(frozen=True)
class Packs:
    """Rows of a packed data set: `shares[i]` of the rows hold samples of the lengths `packs[i]`."""

    seq_len: int
    packs: tuple[tuple[int, ...], ...]
    shares: tuple[float, ...]

    @cached_property
    def samples(self) -> float:
        """Samples of a row, on average: the packing factor."""
        return math.fsum(len(pack) * share for pack, share in zip(self.packs, self.shares, strict=True))

    @cached_property
    def efficiency(self) -> float:
        """Share of the rows' tokens that are no padding."""
        tokens = math.fsum(sum(pack) * share for pack, share in zip(self.packs, self.shares, strict=True))
        return tokens / self.seq_len

    @cached_property
    def squares(self) -> tuple[int, ...]:
        """Sum of the squared lengths of each pack: attention stays within a sample."""
        return tuple(sum(t * t for t in pack) for pack in self.packs)


@lru_cache(maxsize=64)
def packs_of(lengths: Lengths, seq_len: int, most: int = MOST_SAMPLES) -> Packs:
    """Packs of the whole data set, of at most `most` samples. UserError if a sample is longer than a row."""
    lengths.check(seq_len)
    assert most >= 1
    open_packs = _OpenPacks()
    full: dict[tuple[int, ...], float] = defaultdict(float)
    for tokens, share in zip(reversed(lengths.tokens), reversed(lengths.shares), strict=True):
        for weight, pack in open_packs.take(tokens, share):
            room = seq_len - sum(pack)
            if len(pack) == most or room < lengths.tokens[0]:
                full[pack] += weight
            else:
                open_packs.put(room, (weight, pack))
    for weight, pack in open_packs.all():
        full[pack] += weight
    total = math.fsum(full.values())
    return Packs(seq_len, tuple(full), tuple(weight / total for weight in full.values()))


class _OpenPacks:
    """Packs with room, by the tokens left; the emptiest are found at once, however long a row is."""

    def __init__(self) -> None:
        self._by_room: dict[int, list[Weighted]] = {}
        self._rooms: list[int] = []  # a heap of the keys, negated

    def put(self, room: int, pack: Weighted) -> None:
        if room not in self._by_room:
            self._by_room[room] = []
            heapq.heappush(self._rooms, -room)
        self._by_room[room].append(pack)

    def take(self, tokens: int, share: float) -> list[Weighted]:
        """Add the sequences of one length, a `share` of all, to the emptiest packs, which are open no more.

        Returns the packs that hold them; those that found no room have a pack each.
        """
        added: list[Weighted] = []
        while share > 0 and self._rooms and -self._rooms[0] >= tokens:
            packs = self._by_room[-self._rooms[0]]
            weight, pack = packs.pop()
            if weight > share:
                packs.append((weight - share, pack))
            if not packs:
                del self._by_room[-heapq.heappop(self._rooms)]
            added.append((min(weight, share), (*pack, tokens)))
            share -= min(weight, share)
        if share > 0:
            added.append((share, (tokens,)))
        return added

    def all(self) -> Iterator[Weighted]:
        """Every open pack, from the fullest to the emptiest."""
        return chain.from_iterable(self._by_room[room] for room in sorted(self._by_room))
