"""The commands of `itertime`, one module each: options in, the library called, text or JSON out."""

__all__ = [
    "budget",
    "calibrate",
    "catalogue",
    "options",
    "predict",
    "profile",
    "search",
    "search_output",
    "timeline",
    "train_time",
    "validate",
]
