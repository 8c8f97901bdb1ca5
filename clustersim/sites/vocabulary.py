"""Words and numbers that Slurm takes for its settings, in a file of a site as well as in its own exports."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["FOLLOWED_OPTIONS", "NODE_STATES", "PARTITION_STATES", "PLUGINS", "PREEMPT_MODES"]

PLUGINS: Mapping[str, tuple[str, ...]] = {
    "SchedulerType": ("sched/backfill", "sched/builtin"),
    "SelectType": ("select/cons_tres", "select/cons_res", "select/linear"),
    "PriorityType": ("priority/multifactor", "priority/basic"),
    "PreemptType": ("preempt/none", "preempt/qos", "preempt/partition_prio"),
}
"""The plugins by which Slurm schedules; another one has rules that are not known here."""

NODE_STATES = ("up", "down")
PARTITION_STATES = ("UP", "DOWN", "DRAIN", "INACTIVE")
PREEMPT_MODES = ("OFF", "CANCEL", "REQUEUE", "SUSPEND", "GANG", "WITHIN")
"""Words of PreemptMode, of which a value may have several with a comma between them."""

FOLLOWED_OPTIONS: Mapping[str, float | None] = {
    "assoc_limit_stop": None,
    "batch_sched_delay": 3,
    "bf_interval": 30,
    "bf_job_part_count_reserve": 0,
    "bf_max_job_array_resv": 20,
    "bf_max_job_assoc": 0,
    "bf_max_job_part": 0,
    "bf_max_job_start": 0,
    "bf_max_job_test": 500,
    "bf_max_job_user": 0,
    "bf_max_job_user_part": 0,
    "bf_min_age_reserve": 0,
    "bf_min_prio_reserve": 0,
    "bf_one_resv_per_job": None,
    "bf_resolution": 60,
    "bf_window": 1440,
    "bf_window_linear": 0,
    "default_queue_depth": 100,
    "partition_job_depth": 0,
    "preempt_reorder_count": 1,
    "preempt_strict_order": None,
    "preempt_youngest_first": None,
    "sched_interval": 60,
}
"""Names in SchedulerParameters that the policy `slurm` follows, with their defaults. None: a flag that is
off, or a default that follows from another parameter. `bf_window` is in minutes, all other times are in
seconds.
"""
