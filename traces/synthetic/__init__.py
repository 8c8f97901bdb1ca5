"""Synthetic traces: arrivals, GPU counts, run times, models and deadlines from seeded draws.

| name | what |
|---|---|
| `Recipe` | what to generate: number of jobs, load, arrivals, sizes, rules, deadlines, seed |
| `generate` | the jobs of a recipe and a report, in memory |
| `generate_stored` | the same, with the jobs on disk |
| `sizes_path` | the file of a mix of sizes and run times |
"""

from .generate import generate, generate_stored
from .recipe import Recipe
from .sizes import sizes_path

__all__ = ["Recipe", "generate", "generate_stored", "sizes_path"]
