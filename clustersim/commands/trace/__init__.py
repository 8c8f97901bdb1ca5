"""`clustersim trace`: import job logs; generate, check, describe, compare, fit, slice and scale traces.

| module | commands |
|---|---|
| `importing` | `import`, `import-table` |
| `generating` | `generate` |
| `checking` | `check` |
| `describing` | `describe`, `compare` |
| `fitting` | `fit` |
| `deriving` | `slice`, `scale` |
| `serving` | `services` |
| `options` | options that several of them have, and other commands that read logs |
| `output` | traces with their reports, and words in common |
"""

from itertime.commandline import brief, new_app

from . import checking, deriving, describing, fitting, generating, importing, serving
from .options import Columns, GpuResources, LogCluster, LogFormatName, TimeUnit

__all__ = ["Columns", "GpuResources", "LogCluster", "LogFormatName", "TimeUnit", "app"]

app = new_app("Import job logs; generate, check, describe, compare and change traces.")
_IMPORT = ("--output", "--format", "--columns", "--tenant", "--log-cluster", "--from-s", "--until-s")
_GENERATE = ("--output", "--jobs", "--preset", "--load", "--cluster", "--deadlines", "--seed")

app.command(
    "import", cls=brief(_IMPORT, [("a log of Slurm", "clustersim trace import sacct.txt -o jobs.csv")])
)(importing.import_)
app.command("import-table")(importing.import_table)
app.command(
    "generate",
    cls=brief(
        _GENERATE,
        [("200 jobs at a load of 0.9", "clustersim trace generate --jobs 200 --load 0.9 -o jobs.csv")],
    ),
)(generating.generate)
app.command("check")(checking.check)
app.command("describe")(describing.describe)
app.command("compare")(describing.compare)
app.command("fit")(fitting.fit)
app.command("slice")(deriving.slice_)
app.command("scale")(deriving.scale)
app.command("services")(serving.services)
