"""From a trace and settings to a finished run: configuration, set-up, manifest, fingerprints.

| running | |
|---|---|
| `run` | simulate a trace, from a file or from jobs, under one policy |
| `run_config` | the same for a `Trace` and a `RunConfig` |
| `summary_of` | the summary alone |
| `compare` | several configurations on one trace, in parallel processes |
| `suited_configs` | which configurations have policies that can run, and why the others cannot |
| `RunConfig` | the settings of a run, checked before anything is simulated |
| `SETTINGS`, `Setting` | what is declared of each setting, by name; the class of these declarations |
| `Entry` | what a manifest has of a setting |
| `best_possible` | the bound of the jobs of a run: what no policy can do better |
| `NO_BOUND` | the value of the setting `bound` with which no bound is computed |
| `changed_site` | the document of a site with one value changed |
| `closures_of` | the entries of a calendar for the nodes of a site that are down |
| `epoch_of` | the parameter of a policy that dates the clock of the trace |
| `has_dates` | whether the runs of a site depend on the date of the trace's zero |
| `params_with_site` | the parameters of a policy, with the site of the settings if it takes one |
| `is_of_nodes` | whether the price in a manifest is that of its nodes |
| `setup_of` | the `RunSetup` of settings: files are read, the policy is made |

| traces | |
|---|---|
| `Trace` | jobs in order of submission, and the file or recipe that they come from |
| `trace_of_manifest` | the trace of an earlier run, or the reason why there is none |
| `recipe_values` | what the settings of runs decide of a trace that is generated for them |
| `stated_hash` | the hash of the trace's file as a manifest states it |
| `LARGEST_FILE` | bytes of the largest file that is read because a manifest names it |

| policies | |
|---|---|
| `find_policy`, `list_policies` | the class of a name or of `file.py:Class`; all registered policies |
| `algorithm_of` | the policy from which another one differs in its planner alone |
| `make_policy` | an instance with its parameters |
| `policy_details` | what a policy says about itself: docstring, parameters with defaults, papers |

| fingerprints | |
|---|---|
| `code_hash` | of all our code that a result depends on |
| `policy_hash`, `systems_hash` | of a policy's file or package; of the nodes' systems and profiles |
| `is_of_this_code` | tells whether the installed program made a run |
| `other_libraries` | how Python and the libraries that made a run differ from those here |
| `profile_of` | the name and the hash of the profile of the nodes |
| `malformed_versions` | what is wrong with the versions in a manifest; empty if nothing is |
| `missing_entries` | the entries of every manifest that one lacks |
| `bound_stated` | a bound as manifests state it |
| `IN_SUMMARY` | the entries of a manifest that the summary repeats |

| rows of plans.csv | |
|---|---|
| `plan_record` | a row, computed from the planner's prediction |

Why
- Summary and records are functions of trace, settings and seed, byte for byte. Wall-clock times are in the
  manifest (`timings`), with `compile_s` apart; the summary holds `wall_s` and `policy_wall_s` as null.
- A trace is read once, checked as a whole, and sorted into a temporary file of ours by external merge sort.
  That serves plain files, compressed ones and pipes alike, and costs a seventh of the parsing. A file that
  changes during a run cannot reach the run.
- plans.csv is written at the end of a run, by the planner that chose the plans. A report made later by
  another version cannot attach other numbers to an old run.
"""

from .compare import compare, suited_configs
from .config import NO_BOUND, SETTINGS, RunConfig
from .fingerprints import (
    code_hash,
    is_of_this_code,
    malformed_versions,
    other_libraries,
    policy_hash,
    systems_hash,
)
from .manifest import IN_SUMMARY, bound_stated, missing_entries, profile_of
from .plan_records import plan_record
from .policies import algorithm_of, find_policy, list_policies, make_policy, policy_details
from .run import run, run_config, summary_of
from .run_bounds import best_possible
from .settings import Entry, Setting
from .setup import is_of_nodes, setup_of
from .sites import changed_site, closures_of, epoch_of, has_dates, params_with_site
from .source import LARGEST_FILE, Trace, recipe_values, stated_hash, trace_of_manifest

__all__ = [
    "IN_SUMMARY",
    "LARGEST_FILE",
    "NO_BOUND",
    "SETTINGS",
    "Entry",
    "RunConfig",
    "Setting",
    "Trace",
    "algorithm_of",
    "best_possible",
    "bound_stated",
    "changed_site",
    "closures_of",
    "code_hash",
    "compare",
    "epoch_of",
    "find_policy",
    "has_dates",
    "is_of_nodes",
    "is_of_this_code",
    "list_policies",
    "make_policy",
    "malformed_versions",
    "missing_entries",
    "other_libraries",
    "params_with_site",
    "plan_record",
    "policy_details",
    "policy_hash",
    "profile_of",
    "recipe_values",
    "run",
    "run_config",
    "setup_of",
    "stated_hash",
    "suited_configs",
    "summary_of",
    "systems_hash",
    "trace_of_manifest",
]
