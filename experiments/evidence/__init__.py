"""What measured iterations say of predictions: programs that compute the tables and constants that ship.

Each runs as `python -m experiments.evidence.PROGRAM`.

| program | what it computes |
|---|---|
| `build_intervals` | the intervals of `itertime.accuracy` |
| `build_errors` | its errors by GPU and framework |
| `build_lengths` | the shipped lengths of samples |
| `balance_table` | what these lengths cost, by how they are dealt to ranks |
| `choose_plans` | what choosing the plan predicted best costs |
| `fit_frameworks` | the constants of frameworks, each source left out in turn |
| `fit_chips` | what chips that only data sheets describe reach of their peak, each model left out in turn |
| `left_out` | errors and coverage of every source, with that source left out |
| `growth` | what the slowest of many GPUs costs |
| `build_convergence` | steps to convergence and start-up, of BERT's result logs |

Why
- The programs read published runs in place; what ships is what they compute.
- No installed package imports this one.
"""

__all__: list[str] = []
