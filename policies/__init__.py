"""Scheduling policies, one small file each; the entry points in `pyproject.toml` give them their names.

`reservations`, `promises` and `spare` are the parts that `elasticflow` and `vtrain_aware` are made of;
`gavel`, `ledger`, `timeshares` and `finish_time` those of Gavel's policies; `estimates` and `shadow` those of
the backfilling ones; `parameters`, `placing`, `rounds`, `tenants` and `turns` are shared by several.
"""
