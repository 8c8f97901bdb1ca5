from pathlib import Path

import pytest

from itertime.spec import Lengths, load_lengths


@pytest.fixture(scope="session")
def histogram(shared_dir: Path) -> Lengths:
    """The published lengths of the Wikipedia data; skips the test where they are missing."""
    path = shared_dir / "data" / "mlperf" / "wikipedia_length_histogram_512.csv"
    if not path.is_file():
        pytest.skip(f"no histogram of lengths at {path}")
    return load_lengths(str(path), 512)
