"""What runs and comparisons say, as sentences for the terminal and the page.

| name | what |
|---|---|
| `answer`, `tiles`, `Tile` | what the runs say, in a line; its figures; one of these |
| `heads` | what stands above all numbers: the load that the jobs offer, the planner |
| `load_differences` | that a generated trace does not offer the load that it states |
| `verdict` | which policy does best, by how much, and over which jobs |
| `caution` | the limits of the verdict |
| `notes` | what is needed to judge the numbers |
| `sizes_given` | which policies allocate other numbers of GPUs than jobs request |
"""

from .answer import Tile, answer, tiles
from .conclusions import caution, verdict
from .loads import heads, load_differences
from .notes import notes
from .sizes import sizes_given

__all__ = [
    "Tile",
    "answer",
    "caution",
    "heads",
    "load_differences",
    "notes",
    "sizes_given",
    "tiles",
    "verdict",
]
