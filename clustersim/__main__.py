"""`python -m clustersim`."""

from __future__ import annotations

import sys

from clustersim.cli import main

sys.exit(main())
