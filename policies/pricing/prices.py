"""The price of a GPU-second."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Prices"]


class Prices(NamedTuple):
    """What a GPU-second costs the other jobs, in seconds.

    Of m jobs on N GPUs, the i-th shortest (from 0) delays the m - 1 - i longer ones. A GPU that it holds for
    a second keeps 1/N of the cluster from them for a second. So its price is

        lam_i = (price (m - 1 - i) + floor) / N

    `ranked` off: the same for all jobs, (price m + floor) / N.
    """

    price: float = 3.0
    floor: float = 0.0
    ranked: bool = True

    def of(self, rank: int, jobs: int, gpus: float) -> float:
        """For the job with `rank` shorter ones, of `jobs` jobs on `gpus` GPUs.

        >>> Prices(price=3.0).of(0, 5, 8), Prices(price=1.0, ranked=False).of(0, 5, 10)
        (1.5, 0.5)
        """
        longer = jobs - 1 - rank if self.ranked else jobs
        return (self.price * longer + self.floor) / gpus
