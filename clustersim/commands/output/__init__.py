"""What the commands print.

| module | what |
|---|---|
| `runs` | what stands for a run or a comparison; the folders of runs that a command was given |
| `grids` | cells, differences and results of a grid |
| `policies` | what a policy does, and its parameters |
| `columns` | tables of plain text, 80 characters wide |
| `waits` | the wait of a job in words |
| `terminal` | tables, plain lines and progress on a terminal |
"""

__all__ = ["columns", "grids", "policies", "runs", "terminal", "waits"]
