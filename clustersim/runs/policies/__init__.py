"""Policies by name: installed ones, and those in a user's file.

| name | what |
|---|---|
| `find_policy`, `make_policy` | the class of a policy by name or file; an instance with its parameters |
| `algorithm_of` | the policy from which another one differs in its planner alone |
| `list_policies`, `PolicyInfo` | the installed policies; one of them, with its first line of help |
| `parameters_of` | the parameters of a policy by name, and whether each has a default |
| `policy_details`, `PolicyDetails` | what a policy says about itself: docstring, parameters, papers |
| `hash_of_files` | a hash of a policy's file and of the files beside it that it depends on |
"""

from .details import PolicyDetails, policy_details
from .files import hash_of_files
from .registry import PolicyInfo, algorithm_of, find_policy, list_policies, make_policy, parameters_of

__all__ = [
    "PolicyDetails",
    "PolicyInfo",
    "algorithm_of",
    "find_policy",
    "hash_of_files",
    "list_policies",
    "make_policy",
    "parameters_of",
    "policy_details",
]
