"""`clustersim trace calendar`: when the nodes of a log were there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .backtest import GpusPerNode, LogFile, TenantColumn, TimeZone
from .help.options import Json, SystemName
from .trace import Columns, LogFormatName, TimeUnit

__all__ = ["calendar"]


def calendar(
    log: LogFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="Calendar to write (.yaml).")],
    cluster: Annotated[
        str | None, typer.Option(help="Shape (n20g8) or YAML file of the cluster; by default inferred.")
    ] = None,
    gpus_per_node: GpusPerNode = None,
    least_s: Annotated[
        float, typer.Option(help="Seconds that a node must be unused to count as out of service.")
    ] = 6 * 3600.0,
    system: SystemName = "dgx-a100-80gb",
    log_format: LogFormatName = None,
    columns: Columns = None,
    time_unit: TimeUnit = None,
    time_zone: TimeZone = None,
    tenant: TenantColumn = None,
    json: Json = False,
) -> None:
    """Infer from a log when its nodes were there, as a calendar that `run` reads.

    Where the log names the nodes of its jobs, they appear, vanish and fail by themselves; else the capacity
    that the log shows is stated by the last nodes.
    """
    from clustersim.backtest import calendar_of, read_logged
    from clustersim.cluster import load_cluster
    from itertime.commandline import print_json
    from itertime.errors import UserError
    from itertime.io import write_text
    from traces.logs import ReadOptions

    from .output.terminal import say_item

    if output.suffix not in (".yaml", ".yml"):
        raise UserError(f"--output {output}: must end in .yaml or .yml, as run reads it")
    logged = read_logged(log, ReadOptions(log_format, columns, time_unit, tenant, time_zone))
    stated_cluster = None if cluster is None else load_cluster(cluster, system)
    inferred = calendar_of(logged, stated_cluster, gpus_per_node, least_s)
    write_text(output, inferred.text(log.name))
    if json:
        print_json({**inferred.summary, "entries": inferred.entries(), "assumptions": list(inferred.said)})
        return
    print(f"{output}: {len(inferred.outages):,} entries for {inferred.cluster.shape}")
    for line in inferred.said:
        say_item(line)
    print(f"clustersim run TRACE --cluster {inferred.cluster.shape} --set calendar={output}")
