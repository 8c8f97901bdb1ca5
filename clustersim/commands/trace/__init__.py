"""`clustersim trace`: import job logs, generate synthetic traces, check traces.

| module | commands |
|---|---|
| `importing` | `import`, `import-table` |
| `generating` | `generate` |
| `checking` | `check` |
| `describing` | `describe`, `compare` |
| `options` | options that several of them have, and other commands that read logs |
| `output` | traces with their reports, and words in common |
"""

from itertime.commandline import new_app

from . import checking, describing, generating, importing
from .options import Columns, LogFormatName, TimeUnit

__all__ = ["Columns", "LogFormatName", "TimeUnit", "app"]

app = new_app("Import job logs, generate synthetic traces, check traces.")
app.command("import")(importing.import_)
app.command("import-table")(importing.import_table)
app.command("generate")(generating.generate)
app.command("check")(checking.check)
app.command("describe")(describing.describe)
app.command("compare")(describing.compare)
