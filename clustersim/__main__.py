"""`python -m clustersim`."""

import sys

from .cli import main

sys.exit(main())
