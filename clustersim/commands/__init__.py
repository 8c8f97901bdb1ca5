"""The commands of `clustersim`.

| module | commands |
|---|---|
| `simulate` | `run`, `compare`, `demo` |
| `grid` | `grid` |
| `what_if` | `what-if`, and `compare --vary` |
| `draw` | `report`, `timeline`, `plot`: pages and pictures of recorded runs |
| `check` | `check` |
| `explain` | `explain` |
| `trace` | `trace import`, `generate`, `check`, `describe`, `compare`, `fit`, `slice`, `scale`, `services` |
| `calendar` | `trace calendar` |
| `policies` | `policies`, `policies show`, `policies check`, `policies new` |
| `backtest` | `backtest` |
| `predict_start` | `predict-start` |
| `site` | `site slurm` |
| `bound` | `bound` |
| `serve` | `serve` |
| `help` | what commands have in common: options, examples, completion |
| `output` | what the commands print about runs and grids; tables and progress on a terminal |

Commands import what they need inside their functions, so that `--help` is fast.
"""

__all__ = [
    "backtest",
    "bound",
    "calendar",
    "check",
    "draw",
    "explain",
    "grid",
    "help",
    "output",
    "policies",
    "predict_start",
    "serve",
    "simulate",
    "site",
    "trace",
    "what_if",
]
