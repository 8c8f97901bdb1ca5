"""The shipped profiles from published tables of operators, and a profile from a table of one's own.

`python -m experiments.profiles.build` computes one. It reads the tables of `../shared/data`, or the table
that `itertime profile collect` wrote.

| module | what |
|---|---|
| `build` | the program |
| `chips` | the data sheet of each GPU, and which tables measure it |
| `measurements` | reading of tables, and the arithmetic that all fits share |
| `fit_gemm`, `fit_attention`, `fit_elementwise`, `fit_collectives` | kernels of the older tables |
| `attention_slowdown` | how much longer earlier flash attention takes |
| `sustained` | matrix products at the power limit |
| `training` | kernels of newer training software |
| `collected` | fits to a table of `itertime profile collect` |
"""
