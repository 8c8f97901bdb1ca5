"""`clustersim site slurm`: a site from the outputs of scontrol and sacctmgr, or from slurm.conf."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clustersim.commands.trace.options import TimeZone

__all__ = ["slurm"]


def slurm(
    config: Annotated[Path, typer.Option(help="Output of 'scontrol show config', or slurm.conf.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Site to write (.yaml).")],
    nodes: Annotated[
        Path | None, typer.Option(help="Output of 'scontrol show node'; by default the lines of slurm.conf.")
    ] = None,
    partitions: Annotated[
        Path | None,
        typer.Option(help="Output of 'scontrol -a show partition'; by default the lines of slurm.conf."),
    ] = None,
    qos: Annotated[Path | None, typer.Option(help="Output of 'sacctmgr show qos -P'.")] = None,
    assoc: Annotated[Path | None, typer.Option(help="Output of 'sacctmgr show assoc tree -P'.")] = None,
    reservations: Annotated[Path | None, typer.Option(help="Output of 'scontrol show reservation'.")] = None,
    gres: Annotated[
        Path | None, typer.Option(help="gres.conf, for nodes whose Gres= states no type of GPU.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the cluster; by default ClusterName.")] = None,
    time_zone: TimeZone = None,
) -> None:
    """Read a Slurm cluster: nodes, partitions, QOS, accounts and the rules of its scheduler.

    What is read, and what is not modelled and differs from Slurm's default, is said on stderr.
    """
    from clustersim.commands.output.terminal import say
    from clustersim.sites import summary_of, write_site
    from clustersim.sites.exports import SlurmFiles, read_slurm
    from itertime.errors import UserError
    from traces.logs.cells import time_zone as zone_of

    if output.suffix not in (".yaml", ".yml"):
        raise UserError(f"--output {output}: must end in .yaml or .yml, as --site reads it")
    files = SlurmFiles(
        config, nodes, partitions, qos, assoc, reservations, gres, name=name, zone=zone_of(time_zone)
    )
    site, said = read_slurm(files)
    write_site(site, output)
    say(f"{site.name}:", err=True)
    for sentence in (*summary_of(site), *said):
        say(f"  - {sentence}", indent=4, err=True)
    if site.reservations and time_zone is None:
        say("  - times of reservations are taken as UTC; --time-zone names another zone", indent=4, err=True)
    if site.unmodelled:
        say("Not modelled, and different from Slurm's default:", err=True)
        for sentence in site.unmodelled:
            say(f"  - {sentence}", indent=4, err=True)
    say(f"Written to {output}", err=True)
