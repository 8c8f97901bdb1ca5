"""What measured iterations say of predictions: programs that compute the tables and constants that ship.

| program | what it computes |
|---|---|
| `python -m itertime.evidence.build_intervals` | the intervals of `itertime.accuracy` |
| `python -m itertime.evidence.build_errors` | its errors by GPU and framework |
| `python -m itertime.evidence.build_lengths` | the shipped lengths of samples |
| `python -m itertime.evidence.balance_table` | what these lengths cost, by how they are dealt to ranks |
| `python -m itertime.evidence.choose_plans` | what choosing the plan predicted best costs |
| `python -m itertime.evidence.fit_frameworks` | the constants of frameworks, each source left out in turn |
| `python -m itertime.evidence.build_convergence` | steps to convergence and start-up, of BERT's result logs |

`source_of` names the organisation behind a row: its runs are left out together.

Why
- The programs read published runs in place; what ships is what they compute.
- A prediction never imports this package.
"""

from .sources import source_of

__all__ = ["source_of"]
