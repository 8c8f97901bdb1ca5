"""Arguments of the programs of this folder."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["program_parser", "tables_parser"]


def program_parser(program: str, description: str, example: str) -> argparse.ArgumentParser:
    """A parser whose help ends with the `example`, lines as they are."""
    return argparse.ArgumentParser(
        prog=program,
        description=description,
        epilog=example,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def tables_parser(program: str, description: str, example: str) -> argparse.ArgumentParser:
    """The parser of a program that reads tables of measured runs, as `files`."""
    parser = program_parser(program, description, example)
    parser.add_argument("files", nargs="+", type=Path, help="tables of measured runs")
    return parser
