"""Grids of runs: read from a file, made in parallel, kept whole, compared over seeds.

| module | what |
|---|---|
| `document`, `spec`, `cells` | the grid file: YAML, its parts, the cells that it expands to |
| `inputs`, `plan` | the inputs and the key of each cell, and all checks before anything runs |
| `store` | the results folder |
| `work`, `nursery` | making one cell, in a process of its own, within limits |
| `worker`, `engine`, `campaign` | making all of them on dask.distributed |
| `results`, `tables` | reading them back, and comparing them |
"""

__all__: list[str] = []
