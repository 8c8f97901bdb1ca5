"""Presets of generated traces from job logs.

| name | what |
|---|---|
| `fit_preset` | the preset of a trace: sizes, run times, rhythm of arrivals, tenants |
| `held_out` | how far what a fit of the first part generates is from the rest |
| `write_preset`, `preset_text` | a preset as a file, as YAML |
| `LEVELS` | the shares at which run times are tabled |
"""

from .preset import fit_preset, held_out, preset_text, write_preset
from .run_times import LEVELS

__all__ = ["LEVELS", "fit_preset", "held_out", "preset_text", "write_preset"]
