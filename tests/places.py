"""Where the repository lies, and the published data beside it."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("CLUSTERSIM_SHARED", ROOT.parent / "shared"))
TABLES = SHARED / "data" / "iterations"
