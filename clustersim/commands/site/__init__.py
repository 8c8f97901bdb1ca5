"""`clustersim site`: the machines and the rules of a site, from the exports of its workload manager.

| module | command |
|---|---|
| `slurm` | `slurm` |
"""

from itertime.commandline import new_app

from .slurm import slurm

__all__ = ["app"]

app = new_app("Read the machines and the rules of a site, for run, compare, backtest and what-if.")
app.info.subcommand_metavar = "COMMAND"
app.callback()(lambda: None)
app.command("slurm")(slurm)
