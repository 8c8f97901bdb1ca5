"""Generated traces: arrivals, sizes, and recipes.

| name | what |
|---|---|
| `Recipe` | What to generate |
| `generate` | Like `generate_stored`, with all jobs in memory |
| `generate_stored` | The jobs of a recipe in submission order, and a report of how they were made |
| `sizes_path` | The file of a size mix |
"""

from .generate import Recipe, generate, generate_stored
from .sizes import sizes_path

__all__ = ["Recipe", "generate", "generate_stored", "sizes_path"]
