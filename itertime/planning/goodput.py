"""What interruptions, checkpoints and evaluations add to the days of a training: its goodput.

The goodput of a training is the share of its wall-clock time in which iterations are done that need not be
done again. A training works for tau seconds, then saves for C seconds, repeatedly. Interruptions come at
random, M seconds apart on average. Each of them costs the work since the last save, and R seconds until the
iterations go on. The mean time that tau seconds of work take is then (Daly, "A higher order estimate of the
optimum checkpoint interval for restart dumps", Future Generation Computer Systems 22, 2006, equation 20)

    M e^(R/M) (e^((tau + C)/M) - 1)

M is `mtbf_gpu_h` over the number of GPUs, as any GPU that fails stops the whole training. Interruptions that
come during a save, a load or a restart are counted; GPUs that are replaced by no spare are not.

| preset | source |
|---|---|
| `none` | no interruptions, checkpoints or evaluations |
| `default` | the defaults of failures and overheads in `clustersim` |
| `llama3` | 466 interruptions in 54 days on 16,384 GPUs, storage that sustains 2 TB/s ("The Llama 3 Herd of \
Models", 2024, sections 3.3.1 and 3.3.4), and an assumed restart of 600 s |

The restart of `llama3` is bounded from above: beyond 800 s, the more than 90 % of effective training time
that the paper reports could not be.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from math import exp, expm1, inf, sqrt
from types import MappingProxyType

from pydantic.dataclasses import dataclass

from itertime.errors import UnknownName, UserError
from itertime.io import CONFIG, NonNegative, Positive, construct, optional

__all__ = ["DOWNTIMES", "Downtime", "Goodput", "daly_interval_s", "goodput", "stretch_of", "young_interval_s"]

HOUR_S = 3600.0
_HOPELESS = 14.0  # mean times between interruptions in one interval: a million tries and no end


@dataclass(frozen=True, config=CONFIG)
class Downtime:
    """What keeps a training from its iterations. The defaults are those of the preset `default`."""

    mtbf_gpu_h: Positive | None = optional(
        25_000.0, "mean time between interruptions of the training, times its GPUs; null: there are none", "h"
    )
    restart_s: NonNegative = optional(30.0, "from an interruption until the load of a checkpoint begins", "s")
    restart_gpu_s: NonNegative = optional(0.075, "what each GPU adds to `restart_s`", "s")
    checkpoint_s: NonNegative | None = optional(
        None,
        "for which a checkpoint stops the training; a load takes as long; null: from its bytes",
        "s",
    )
    checkpoint_every_s: Positive | None = optional(
        None, "seconds of iterations between two checkpoints; null: Daly's optimum", "s"
    )
    checkpoint_bytes_per_parameter: NonNegative = optional(14.0, "size of a checkpoint", "bytes")
    storage_node_bytes_per_s: Positive = optional(2e9, "what a node writes to the storage", "bytes/s")
    storage_bytes_per_s: Positive = optional(100e9, "what the storage takes from all nodes", "bytes/s")
    evaluation_s: NonNegative = optional(0.0, "of an evaluation", "s")
    evaluation_every_s: Positive = optional(HOUR_S, "seconds of iterations between two evaluations", "s")

    @classmethod
    def of(cls, settings: Mapping[str, object], where: str = "goodput") -> Downtime:
        """The preset that `settings` name as `preset`, else `default`, with their other keys in its place.
        UserError, beginning with `where`, for an unknown preset or key and for a wrong value.
        """
        values = {key: None if value == "none" else value for key, value in settings.items()}
        preset = str(settings.get("preset", "default"))
        values.pop("preset", None)
        if preset not in DOWNTIMES:
            raise UserError(f"{where}: {UnknownName('preset', preset, DOWNTIMES)}")
        return construct(cls, vars(DOWNTIMES[preset]) | values, where)

    def saved_in_s(self, parameters: float, nodes: float) -> float:
        """Seconds of a checkpoint of so many parameters that so many nodes write."""
        if self.checkpoint_s is not None:
            return self.checkpoint_s
        bytes_per_s = min(self.storage_bytes_per_s, self.storage_node_bytes_per_s * nodes)
        return parameters * self.checkpoint_bytes_per_parameter / bytes_per_s


DOWNTIMES: Mapping[str, Downtime] = MappingProxyType(
    {
        "none": Downtime(mtbf_gpu_h=None, checkpoint_s=0.0),
        "default": Downtime(),
        "llama3": Downtime(
            mtbf_gpu_h=54 * 24 * 16_384 / 466,
            restart_s=600.0,
            restart_gpu_s=0.0,
            storage_bytes_per_s=2e12,
        ),
    }
)


@dataclasses.dataclass(frozen=True)
class Goodput:
    """Where the wall-clock time of a training goes.

    `share`, the goodput itself, and `checkpoint_share`, `interruption_share` and `evaluation_share` add up to
    1. `mtbf_s`: seconds between interruptions, inf without any. `checkpoint_s`: seconds of a checkpoint, made
    after every `checkpoint_every_s` seconds of iterations; inf: never, 0: at all times, as it costs nothing.
    """

    share: float
    checkpoint_share: float
    interruption_share: float
    evaluation_share: float
    mtbf_s: float
    checkpoint_s: float
    checkpoint_every_s: float


def goodput(downtime: Downtime, parameters: float, gpus: int, gpus_per_node: int) -> Goodput:
    """The goodput of a training of a model with so many parameters.

    UserError if interruptions come so often that the training would never end.

    >>> round(goodput(DOWNTIMES["llama3"], 405.9e9, 16_384, 8).share, 3)
    0.919
    """
    mtbf_s = inf if downtime.mtbf_gpu_h is None else downtime.mtbf_gpu_h * HOUR_S / gpus
    save_s = downtime.saved_in_s(parameters, max(1.0, gpus / gpus_per_node))
    every_s = downtime.checkpoint_every_s or daly_interval_s(save_s, mtbf_s)
    restart_s = downtime.restart_s + downtime.restart_gpu_s * gpus + save_s
    saves = save_s / every_s if every_s else 0.0
    if max(every_s + save_s, restart_s) > _HOPELESS * mtbf_s:
        raise UserError(
            f"goodput: an interruption every {mtbf_s:.3g} s on {gpus:,} GPUs, {every_s:.3g} s between "
            f"checkpoints and {restart_s:.3g} s to a restart: the training never ends; raise mtbf_gpu_h or "
            "lower the others"
        )
    stretch = stretch_of(every_s, save_s, restart_s, mtbf_s)
    evaluations = downtime.evaluation_s / downtime.evaluation_every_s
    wall = stretch + evaluations
    return Goodput(
        share=1 / wall,
        checkpoint_share=saves / wall,
        interruption_share=(stretch - 1 - saves) / wall,
        evaluation_share=evaluations / wall,
        mtbf_s=mtbf_s,
        checkpoint_s=save_s,
        checkpoint_every_s=every_s,
    )


def stretch_of(every_s: float, save_s: float, restart_s: float, mtbf_s: float) -> float:
    """Mean seconds that a second of iterations takes, with its saves and interruptions: Daly's equation 20
    over tau, and its limits for no interruptions and for saves that cost nothing; infinite where nearly no
    interval is without an interruption.

    >>> round(stretch_of(3180.0, 60.0, 300.0, 86_400.0), 4), stretch_of(3600.0, 60.0, 300.0, inf)
    (1.0418, 1.0166666666666666)
    """
    if mtbf_s == inf:
        return 1 + save_s / every_s if every_s else 1.0
    if max(every_s + save_s, restart_s) > _HOPELESS * mtbf_s:
        return inf
    if not every_s:
        return exp(restart_s / mtbf_s)
    return mtbf_s * exp(restart_s / mtbf_s) * expm1((every_s + save_s) / mtbf_s) / every_s


def young_interval_s(save_s: float, mtbf_s: float) -> float:
    """Seconds of work between saves, sqrt(2 C M), which waste the least time to first order, for saves of C
    seconds and M seconds between failures of the job (Young, "A first order approximation to the optimum
    checkpoint interval", CACM 17(9), 1974).
    """
    return sqrt(2 * save_s * mtbf_s) if save_s else 0.0


def daly_interval_s(save_s: float, mtbf_s: float) -> float:
    """The higher-order estimate of Daly (2006, equation 37):

        sqrt(2 C M) (1 + sqrt(C / (2 M)) / 3 + (C / (2 M)) / 9) - C   for C < 2 M, else M

    >>> round(daly_interval_s(60.0, 86_400.0))
    3180
    """
    if not save_s or mtbf_s == inf:
        return young_interval_s(save_s, mtbf_s)
    if save_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = save_s / (2 * mtbf_s)
    return sqrt(2 * save_s * mtbf_s) * (1 + sqrt(ratio) / 3 + ratio / 9) - save_s
