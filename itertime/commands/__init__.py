"""The commands of `itertime`, one module each: options in, the library called, text or JSON out."""

__all__ = [
    "budget",
    "calibrate",
    "catalogue",
    "documents",
    "idle_options",
    "options",
    "predict",
    "profile",
    "search",
    "timeline",
    "train_time",
    "validate",
]
