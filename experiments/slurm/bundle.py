"""The exports of a recorded run that ship as traces/samples/slurm-site, which the tutorial on Slurm reads.

    python -m experiments.slurm.bundle RUN

RUN is a recorded run of the workload `sample`. Users are numbers already; names and folders of the machine
that ran it are replaced.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from itertime.io import write_text

__all__ = ["bundled", "write_bundle"]

FOLDER = Path(__file__).parents[2] / "traces" / "samples" / "slurm-site"
FILES = {
    "config.txt": "config.txt",
    "nodes.txt": "nodes.txt",
    "partitions.txt": "partitions.txt",
    "qos.txt": "qos.txt",
    "assoc.txt": "assoc.txt",
    "sacct.txt": "sacct-duplicates.txt",
    "queue.txt": "live-90/squeue.txt",
}


def write_bundle(run: Path, folder: Path = FOLDER) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in FILES.items():
        write_text(folder / name, bundled((run / source).read_text(encoding="utf-8")))


def bundled(text: str) -> str:
    """An export without the folders, the host and the system of the machine that ran it.

    >>> bundled("StateSaveLocation = /tmp/slurm-a_1/state\\nOS=Linux 6.1 #1\\nNodeHostName=vm\\n")
    'StateSaveLocation = /var/spool/slurm/state\\nOS=Linux\\nNodeHostName=head\\n'
    """
    text = re.sub(r"/tmp/slurm-\w+", "/var/spool/slurm", text)
    text = re.sub(r"OS=Linux [^\n]*", "OS=Linux", text)
    text = re.sub(r"(?<=NodeHostName=)\S+", "head", text)
    text = re.sub(r"(?m)^(SlurmctldHost\S* *= )\S+", r"\1head", text)
    return re.sub(r"Slurmctld\(primary\) at \S+", "Slurmctld(primary) at head", text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    write_bundle(parser.parse_args().folder)
