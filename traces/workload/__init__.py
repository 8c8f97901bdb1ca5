"""From GPU counts and run times to jobs with models: rules, and the work of a job.

| name | what |
|---|---|
| `work_maker`, `WorkMaker` | assigns a model and a number of iterations to a job, by rules and a planner |
| `Work` | the work of one job |
| `Rules` | a rules file: choices of model and batch by GPU count, and how deadlines are drawn |
| `Deadlines` | which share of the jobs gets a deadline, and how far away |
| `deadline_factors` | the deadlines drawn, as multiples of run times |
| `rules_path` | the file of the rules |
| `FOLDER` | the folder of bundled rules and sizes |
| `stream` | a random generator for one purpose, independent of all others |
| `as_floats` | an array as Python floats, block by block |
"""

from .rules import FOLDER, Deadlines, Rules, rules_path
from .work import Work, WorkMaker, as_floats, deadline_factors, stream, work_maker

__all__ = [
    "FOLDER",
    "Deadlines",
    "Rules",
    "Work",
    "WorkMaker",
    "as_floats",
    "deadline_factors",
    "rules_path",
    "stream",
    "work_maker",
]
