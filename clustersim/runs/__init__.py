"""From a trace and settings to a finished run: configuration, set-up, manifest, fingerprints.

| name | what |
|---|---|
| `compare` | Run every configuration on the same trace, in parallel processes |
| `RunConfig` | What to simulate, apart from the trace |
| `code_hash` | Hash of all our files that a result depends on |
| `is_of_this_code` | Whether the installed program made the run, by its manifest |
| `malformed_versions` | What is wrong with the versions in a manifest |
| `policy_hash` | Hash of the file of a policy, or of the whole package that contains it |
| `systems_hash` | Hash of the systems of the nodes and their profiles, as `speed` has read them |
| `plan_record` | The record of `key`, a plan that `job` ran |
| `find_policy` | The class behind a registered name or `file.py:Class` |
| `list_policies` | All registered policies in the order of their names |
| `make_policy` | An instance of a policy, named or given as a class, with the given parameters |
| `run` | Simulate `trace` (a file, or jobs) under one policy, by name or class |
| `run_config` | As `run` |
| `setup_of` | What settings resolve to |
| `LARGEST_FILE` | Bytes of the largest trace or table that is read because a manifest names it |
| `Trace` | Jobs in order of submission, and their source |
| `stated_hash` | The hash of the file of the trace, as the manifest states it |
| `trace_of_manifest` | The trace of a run, from the `given` file or as its manifest names it |

Why
- Summary and records are functions of trace, settings and seed, byte for byte. Wall-clock times are in the
  manifest (`timings`); the summary holds `wall_s` and `policy_wall_s` as null.
- A trace is read once, checked as a whole, and sorted into a temporary file of ours by external merge sort.
  That serves plain files, compressed ones and pipes alike, and costs a seventh of the parsing. A file that
  changes during a run cannot reach the run.
"""

from .compare import compare
from .config import RunConfig
from .fingerprints import code_hash, is_of_this_code, malformed_versions, policy_hash, systems_hash
from .plan_records import plan_record
from .registry import find_policy, list_policies, make_policy
from .run import run, run_config, setup_of
from .source import LARGEST_FILE, Trace, stated_hash, trace_of_manifest

__all__ = [
    "LARGEST_FILE",
    "RunConfig",
    "Trace",
    "code_hash",
    "compare",
    "find_policy",
    "is_of_this_code",
    "list_policies",
    "make_policy",
    "malformed_versions",
    "plan_record",
    "policy_hash",
    "run",
    "run_config",
    "setup_of",
    "stated_hash",
    "systems_hash",
    "trace_of_manifest",
]
