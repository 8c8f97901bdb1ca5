"""The commands of `clustersim`, one module each. Slow imports wait until a command runs."""

__all__ = [
    "check",
    "draw",
    "explain",
    "grid",
    "grid_output",
    "policies",
    "run_output",
    "simulate",
    "terminal",
    "trace",
]
