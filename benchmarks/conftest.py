"""Print the work that the benchmarks counted below pytest-benchmark's table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

_lines: list[str] = []


@pytest.fixture
def counted() -> Callable[[str], None]:
    """A function that adds a line of counted work, plans per second for example, to the summary."""
    return _lines.append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _lines:
        terminalreporter.section("counted work, at the fastest round")
        for line in _lines:
            terminalreporter.write_line(line)
