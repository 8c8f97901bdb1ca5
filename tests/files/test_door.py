"""What may stand where a file should: readers end at once, say so, and follow links to files."""

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from clustersim.cluster import load_cluster
from clustersim.failures.maintenance import read_calendar
from clustersim.failures.reservations import read_reservations
from clustersim.grid import read_plan
from clustersim.runs.policies import find_policy
from clustersim.speed.throughput_table import read_throughput_table
from clustersim.speed.variability import read_factors
from itertime.errors import UserError
from itertime.io import door, open_own, open_regular, open_table, read_bytes, read_text
from tests.files.refused_files import READERS
from tests.places import ROOT
from tests.tables import table_rows
from tests.traces.importing import import_log
from traces.statistics.reading import read_columns
from traces.synthetic import load_preset, read_needs
from traces.synthetic.sizes import load_sizes

ALL_READERS: Mapping[str, Callable[[str], object]] = {
    **READERS,
    "calendar": read_calendar,
    "cluster": load_cluster,
    "factors": read_factors,
    "grid": read_plan,
    "log": import_log,
    "needs": read_needs,
    "policy": lambda path: find_policy(f"{path}:Mine"),
    "preset": load_preset,
    "reservations": read_reservations,
    "sizes": load_sizes,
    "statistics": read_columns,
    "text": lambda path: read_text(path, 100),
    "throughputs": read_throughput_table,
    "twice": lambda path: open_table(path).__enter__(),
}
ENDINGS = {"grid": "yaml", "policy": "py", "trace": "csv", "log": "csv", "lengths": "csv", "table": "csv"}
THINGS: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "pipe|regular file|no file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "device|regular file|no file"),
    "terminal": (lambda path: path.symlink_to("/dev/null"), "device|regular file|no file"),
    "folder": (Path.mkdir, "directory|folder|no file"),
    "nothing": (lambda path: path.symlink_to(path.with_name("gone")), "No such file|no file"),
    "circle": (lambda path: path.symlink_to(path), "symbolic links|no file|No such file"),
}
"""What may stand in the place of a file, and what is said of it."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "_PATIENCE_MS", 20)


@pytest.mark.parametrize("thing", THINGS)
def test_what_is_no_file_is_refused_by_every_reader(thing: str, impatient: None, tmp_path: Path) -> None:
    for name, read in ALL_READERS.items():
        path = tmp_path / f"{name}.{ENDINGS.get(name, 'yaml')}"
        THINGS[thing][0](path)
        with pytest.raises(UserError, match=THINGS[thing][1]) as caught:
            read(str(path))
        assert path.name in str(caught.value)
        assert caught.value.exit_code in (2, 3)


@pytest.mark.parametrize(("name", "file"), table_rows("a link to a file is read as the file"))
def test_a_link_to_a_file_is_read_as_the_file(name: str, file: str, tmp_path: Path) -> None:
    copy, link = tmp_path / "copy" / Path(file).name, tmp_path / Path(file).name
    copy.parent.mkdir()
    shutil.copy(ROOT / file, copy)
    link.symlink_to(copy)
    texts = [repr(ALL_READERS[name](str(path))).replace(str(path.parent), "") for path in (copy, link)]
    assert len({re.sub("at 0x[0-9a-f]+", "", text) for text in texts}) == 1


SQUEUE = b"JOBID|STATE|SUBMIT_TIME|TRES_ALLOC|"
JOB = b"job_id,submission_time,duration,num_gpu\na,0,60,1\n"
LONG, BLANK = b"x" * 10_000_001, b"\n" * 1_000_001
HOSTILE: Mapping[str, tuple[bytes, str]] = {
    "a long cell": (JOB + LONG, ":3: a row of more than 10,000,000 characters; look for missing line breaks"),
    "a long header": (LONG, ":1: a row of more than 10,000,000 characters"),
    "a long line of squeue": (SQUEUE + b"\n1|R|" + LONG, ":2: a row of more than 10,000,000 characters"),
    "a long line of scontrol": (b"JobId=1 A=" + LONG, ":1: a row of more than 10,000,000 characters"),
    "blank lines": (BLANK, ":1000001: more than 1,000,000 lines without content; remove them"),
    "blank lines below": (JOB + BLANK, ":1000003: more than 1,000,000 lines without content"),
    "blank lines of scontrol": (
        b"JobId=1 A=1\n" + BLANK,
        ":1000002: more than 1,000,000 lines without content",
    ),
    "comments": (b"#\n" * 1_000_001 + JOB, ":1000001: more than 1,000,000 lines without content"),
    "packed text": (
        b"JobId=1 A=1\n" + (b"x" * 9_000_000 + b"\n") * 5,
        ": holds more than 32,000,000 bytes, 100 times its own size or more; unpack it first",
    ),
    "no letter": (JOB + b"b\xff,0,1,5\n", ":3: byte 0xff is not UTF-8 text; save the file as CSV in UTF-8"),
    "an end within a letter": (JOB + b"\xe2\x82", ":3: byte 0xe2 is not UTF-8 text|ends within a character"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_text_without_end_is_refused(kind: str, tmp_path: Path) -> None:
    content, error = HOSTILE[kind]
    is_packed = "packed" in kind or sum(kind.encode()) % 2
    (tmp_path / "log").write_bytes(gzip.compress(content, 1) if is_packed else content)
    began = time.process_time()
    with pytest.raises(UserError, match=f"log{error}") as caught:
        import_log(tmp_path / "log")
    assert caught.value.exit_code == 3
    assert time.process_time() - began < 5


def test_what_the_program_writes_itself_is_no_link_and_no_pipe(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    os.mkfifo(tmp_path / "pipe")
    opening = (open_own, partial(open_regular, links=False), partial(read_bytes, links=False))
    for name, opens in product(("link", "pipe"), opening):
        with pytest.raises(OSError, match=r"is a link; remove it|is not a regular file") as caught:
            opens(tmp_path / name)
        assert caught.value.filename == str(tmp_path / name)
    with open_own(tmp_path / "new") as file:
        file.write(b"row\n")
    with open_own(tmp_path / "new") as file:
        file.write(b"row\n")
    assert read_bytes(tmp_path / "new", links=False) == b"row\nrow\n"
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_slow_writer_is_waited_for(impatient: None, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def write() -> None:
        with (tmp_path / "pipe").open("wb") as pipe:
            time.sleep(0.1)  # longer than the patience for a writer that does not come
            pipe.write(gzip.compress(JOB, mtime=0))

    writer = threading.Thread(target=write)
    writer.start()
    while not writer.is_alive():
        time.sleep(0.001)
    jobs, report = import_log(tmp_path / "pipe")
    writer.join()
    assert len(jobs) == 1
    with pytest.raises(UserError, match="is a pipe, and is needed more than once; save it to a file first"):
        read_columns(tmp_path / "pipe")
    assert report["input"]["sha256"] == hashlib.sha256(gzip.compress(JOB, mtime=0)).hexdigest()


def test_a_pipe_without_end_is_not_copied_to_its_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(door, "_LARGEST_PIPE", 1_000_000)
    source, sink = os.pipe()
    os.write(sink, JOB)
    endless = subprocess.Popen(["yes"], stdout=sink, stderr=subprocess.DEVNULL)
    os.close(sink)
    try:
        with pytest.raises(UserError, match="gives more than 1,000,000 bytes; save it to a file"):
            import_log(Path(f"/dev/fd/{source}"))
    finally:
        os.close(source)
        endless.wait(timeout=10)
