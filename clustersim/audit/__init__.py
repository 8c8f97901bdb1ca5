"""The audit behind `clustersim check`: what the folder of a run proves about itself.

| name | what |
|---|---|
| `check_run_folder` | check the files, records and event log of a folder: one `Finding` per rule |
| `replay` | simulate the run of a folder again and compare the files byte for byte |
| `prove` | apply rules to an event log and the records beside it; `check_run_folder` and tests share it |
| `Evidence` | the input of `prove`: log, records, cluster and constants of a run |
| `JobFacts` | what is known of a job apart from the log: its work, its speeds, the size of its model |
| `Finding` | the verdict on one rule: its violations, and what the evidence leaves open |
| `Violation` | one broken rule, as a sentence, with its place in the log |

The rules are in `clustersim.audit.rules`, one class each.

Why
- Records are written in order of submission, and submissions are logged in that order. So log, records and
  usage are read side by side in one pass. A record is held from the submission of its job to the end of the
  job: a sound folder takes little memory, a broken one what its contradictions take.
- What such a merge cannot see is proved otherwise: unique ids by hashes, with an exact second look.
- Plans are computed again, not believed. The planner takes milliseconds, and a run has few kinds of jobs. A
  list of what makes a plan sound would let a slower or a faster plan pass. Shared links go through the code
  that the engine uses. A difference is a violation only in a run of the same program, which the code hash in
  the manifest tells: a version number does not change with every formula.
- A log can prove that it could have happened, not that the policy decided so. `check --replay` does: the
  manifest states everything that a run depends on, so it is simulated again and its bytes are compared. A
  replay runs no policy that a folder names by a path, because that would run other people's code.
"""

from .evidence import Evidence, Finding, JobFacts, Violation
from .folder import check_run_folder
from .log_pass import prove
from .rerun import replay

__all__ = ["Evidence", "Finding", "JobFacts", "Violation", "check_run_folder", "prove", "replay"]
