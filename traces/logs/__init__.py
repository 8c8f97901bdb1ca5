"""Other people's job logs as native traces, with every assumption reported.

| name | what |
|---|---|
| `read_throughputs` | Read a folder of `MODEL.csv` files |
| `write_throughputs` | Write a throughput table |
| `Selection` | Which part of a log becomes jobs, and how its clock is scaled |
| `import_log` | Read a log and turn it into jobs in submission order, with a JSON-ready report |
"""

from .elasticflow import read_throughputs, write_throughputs
from .importer import Selection, import_log

__all__ = ["Selection", "import_log", "read_throughputs", "write_throughputs"]
