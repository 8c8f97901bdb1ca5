"""What the commands have in common: options, examples below the help, completion in a shell.

| module | what |
|---|---|
| `examples` | command lines that work, by command |
| `options` | options that several commands have, and the settings of a run that they make |
| `policy_pages` | the page of docs that explains a policy |
| `completion` | the names that an option takes: policies, planners, settings and others |
"""

__all__ = ["completion", "examples", "options", "policy_pages"]
