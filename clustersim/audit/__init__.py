"""`clustersim check`: what the folder of a run proves about itself.

| name | what |
|---|---|
| `Evidence` | What a run left behind |
| `Finding` | The verdict on one rule |
| `JobFacts` | What is known of a job beside the log |
| `Violation` | A broken rule, in words |
| `check_run_folder` | Check the folder of a run, its files first |
| `prove` | Go through the log under `rules` |
| `replay` | Simulate the run of a folder again, into a temporary folder, and compare file by file |

Why
- Records are written in order of submission and submissions are logged in that order. So log, records and
  usage are read side by side in one pass, and a sound folder takes little memory.
- What a merge cannot see is proved otherwise: unique ids by hashes with an exact second look.
- Plans are computed again, not believed. The planner takes milliseconds, and a run has few kinds of jobs.
  Shared links go through the code that the engine uses. Differences count only against a run of the same
  program, which the code hash in the manifest tells.
- `check --replay` is the last word: it simulates again and compares bytes. It runs no policy that a folder
  names by a path, because that would run other people's code.
"""

from .evidence import Evidence, Finding, JobFacts, Violation
from .folder import check_run_folder
from .log_pass import prove
from .rerun import replay

__all__ = ["Evidence", "Finding", "JobFacts", "Violation", "check_run_folder", "prove", "replay"]
