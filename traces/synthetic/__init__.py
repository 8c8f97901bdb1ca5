"""Synthetic traces: arrivals, GPU counts, run times, models and deadlines from seeded draws.

| name | what |
|---|---|
| `Recipe` | what to generate: number of jobs, load, arrivals, sizes, rules, deadlines, seed |
| `generate` | the jobs of a recipe and a report, in memory |
| `generate_stored` | the same, with the jobs on disk |
| `sizes_path` | the file of a mix of sizes and run times |
| `Preset`, `Rhythm`, `Owners` | a recipe after the example of a log: sizes, arrivals and tenants |
| `SizeClass`, `Quantiles`, `QuantileTable` | the run times of a GPU count; tables of quantiles |
| `load_preset`, `list_presets` | a preset by name or from a file; the names of those bundled |
| `instances_of` | the instances of inference services that need GPUs by a time series, each a `Need` |
| `Diurnal`, `read_needs` | the need of a service through the day; needs from a table |
| `normal_scores` | the normal deviates of ranks |
"""

from .generate import generate, generate_stored
from .preset import Owners, Preset, list_presets, load_preset
from .quantile_table import QuantileTable
from .recipe import Recipe
from .rhythm import Rhythm, normal_scores
from .services import Diurnal, Need, instances_of, read_needs
from .sizes import Quantiles, SizeClass, sizes_path

__all__ = [
    "Diurnal",
    "Need",
    "Owners",
    "Preset",
    "QuantileTable",
    "Quantiles",
    "Recipe",
    "Rhythm",
    "SizeClass",
    "generate",
    "generate_stored",
    "instances_of",
    "list_presets",
    "load_preset",
    "normal_scores",
    "read_needs",
    "sizes_path",
]
