"""The commands of `itertime`, one module each: options in, the library called, text or JSON out."""

__all__ = [
    "budget",
    "calibrate",
    "catalogue",
    "idle_options",
    "options",
    "output",
    "predict",
    "profile",
    "search",
    "timeline",
    "train_time",
    "validate",
]
