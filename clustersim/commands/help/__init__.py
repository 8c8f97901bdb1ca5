"""What the commands have in common: options, examples below the help, completion in a shell.

| module | what |
|---|---|
| `examples` | command lines that work, by command |
| `options` | options that several commands have, and the settings of a run that they make |
| `completion` | the names that an option takes: policies, planners, settings and others |
"""

__all__ = ["completion", "examples", "options"]
