"""From GPU counts and run times to jobs with models: rules, and the work of a job.

| name | what |
|---|---|
| `Deadlines` | A `share` of the jobs gets the deadline submit_s + U(low, high) x duration_s |
| `FILE_ENDINGS` |  |
| `FOLDER` |  |
| `Rules` | A rules file |
| `rules_path` | The file of the rules |
| `Work` | A job's work |
| `WorkMaker` | Assigns work to jobs |
| `as_floats` | The numbers as Python floats, converted a block at a time |
| `deadline_factors` | For each of `count` jobs the distance of its deadline from its submission |
| `stream` | A random generator for one purpose, independent of those for other purposes |
| `work_maker` | A WorkMaker by names, and the provenance of its numbers, for a report |
"""

from .rules import FILE_ENDINGS, FOLDER, Deadlines, Rules, rules_path
from .work import Work, WorkMaker, as_floats, deadline_factors, stream, work_maker

__all__ = [
    "FILE_ENDINGS",
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
