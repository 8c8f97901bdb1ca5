"""Words and numbers that Slurm takes for its settings, in a file of a site as well as in its own exports."""

from __future__ import annotations

from collections.abc import Mapping

from itertime.errors import UnknownName
from itertime.io import shown

__all__ = [
    "CLOCK_ONLY",
    "ENFORCED_WORDS",
    "FOLLOWED_OPTIONS",
    "NODE_STATES",
    "OFF_AT_MINUS_ONE",
    "PARTITION_STATES",
    "PLUGINS",
    "PREEMPT_MODES",
    "PREEMPT_OPTIONS",
    "RANGES",
    "RESET_PERIODS",
    "SELECTION_WORDS",
    "UNMODELLED_OPTIONS",
    "UNMODELLED_SELECTION",
    "enforced",
    "option_fault",
]

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

_MOST_JOBS = 1_000_000
_LARGEST = 2**31 - 1  # where slurm.conf(5) states no greatest value

RANGES: Mapping[str, tuple[int, int]] = {
    "batch_sched_delay": (0, _LARGEST),
    "bf_interval": (1, 10_800),
    "bf_job_part_count_reserve": (0, 100_000),
    "bf_max_job_array_resv": (0, 1000),
    "bf_max_job_assoc": (0, _MOST_JOBS),
    "bf_max_job_part": (0, _MOST_JOBS),
    "bf_max_job_start": (0, 10_000),
    "bf_max_job_test": (1, _MOST_JOBS),
    "bf_max_job_user": (0, _MOST_JOBS),
    "bf_max_job_user_part": (0, _MOST_JOBS),
    "bf_min_age_reserve": (0, 30 * 86_400),
    "bf_min_prio_reserve": (0, 2**63),
    "bf_resolution": (1, 3600),
    "bf_window": (1, 43_200),
    "bf_window_linear": (0, _LARGEST),
    "default_queue_depth": (0, _LARGEST),
    "partition_job_depth": (0, _LARGEST),
    "preempt_reorder_count": (0, _LARGEST),
    "sched_interval": (0, _LARGEST),
}
"""The least and the greatest value of each number among them, by slurm.conf(5) of Slurm 22.05. In place of
any other, Slurm takes the default.
"""

OFF_AT_MINUS_ONE = ("bf_interval", "sched_interval")
"""Numbers of which -1 turns a scheduler off: backfill, or the main one at its own interval."""

UNMODELLED_OPTIONS: Mapping[str, str] = {
    "bf_busy_nodes": "plans do not prefer nodes in use",
    "bf_hetjob_immediate": "components of a heterogeneous job are planned at their own times",
    "bf_hetjob_prio": "components of a heterogeneous job have their own priorities",
    "bf_licenses": "jobs do not wait for licenses here",
    "bf_max_time": "a cycle of backfill takes no time here, and is never cut short",
    "bf_running_job_reserve": "plans are of pending jobs alone",
    "defer": "the main scheduler also runs when a job is submitted",
    "delay_boot": "nodes are never booted for a job here",
    "max_sched_time": "a cycle of the main scheduler takes no time here, and is never cut short",
    "max_switch_wait": "jobs do not wait for a number of switches here",
    "pack_serial_at_end": "jobs of one CPU are placed as any other",
    "reduce_completing_frag": "nodes of completing jobs are free at once here",
    "sched_max_job_start": "a cycle may start any number of jobs",
}
"""Names in SchedulerParameters that decide schedules and that no simulation here follows."""

_CLOCK_ONLY = """
    allow_zero_lic bb_array_stage_cnt bf_continue bf_node_space_size bf_yield_interval
    bf_yield_sleep build_queue_timeout correspond_after_task_cnt disable_hetjob_steps
    disable_job_shrink enable_hetjob_steps enable_user_top ignore_numa ignore_prefer_validation
    max_array_tasks max_rpc_cnt max_script_size no_backup_scheduling no_env_cache
    nohold_on_prolog_fail requeue_setup_env_fail salloc_wait_nodes sbatch_wait_nodes
    sched_min_interval spec_cores_first step_retry_count step_retry_time whole_hetjob
"""
CLOCK_ONLY = frozenset(_CLOCK_ONLY.split())
"""Names in SchedulerParameters, in lower case, that decide no start here: a cycle takes no simulated time."""

PREEMPT_OPTIONS = (
    "min_exempt_priority",
    "preempt_reorder_count",
    "preempt_strict_order",
    "preempt_youngest_first",
    "reclaim_licenses",
    "reorder_count",
    "send_user_signal",
    "strict_order",
    "suspend_grace_time",
    "youngest_first",
)
"""Names in PreemptParameters, with those that SchedulerParameters has for the same."""

SELECTION_WORDS = (
    "CR_CORE",
    "CR_CORE_DEFAULT_DIST_BLOCK",
    "CR_CORE_MEMORY",
    "CR_CPU",
    "CR_CPU_MEMORY",
    "CR_LLN",
    "CR_MEMORY",
    "CR_ONE_TASK_PER_CORE",
    "CR_PACK_NODES",
    "CR_SOCKET",
    "CR_SOCKET_MEMORY",
    "LL_SHARED_GRES",
    "NONE",
    "OTHER_CONS_RES",
    "OTHER_CONS_TRES",
)
"""Words of SelectTypeParameters."""

UNMODELLED_SELECTION: Mapping[str, str] = {
    "CR_LLN": "jobs do not go to the least loaded nodes here",
    "CR_ONE_TASK_PER_CORE": "tasks of a job are not counted here",
    "CR_PACK_NODES": "tasks of a job are not counted here",
    "CR_SOCKET": "single cores are allocated here, not whole sockets",
    "CR_SOCKET_MEMORY": "single cores are allocated here, not whole sockets",
    "LL_SHARED_GRES": "shared GPUs are chosen by other rules here",
}
"""Values of SelectTypeParameters that no simulation here follows."""

ENFORCED_WORDS = ("all", "associations", "limits", "nojobs", "none", "nosteps", "qos", "safe", "wckeys")
"""Words of AccountingStorageEnforce."""

_IMPLIED = {
    "all": ("associations", "limits", "qos", "safe", "wckeys"),
    "limits": ("associations",),
    "qos": ("associations",),
    "safe": ("limits", "associations"),
    "wckeys": ("associations",),
}

RESET_PERIODS = ("NONE", "NOW", "DAILY", "WEEKLY", "MONTHLY", "QUARTERLY", "YEARLY")
"""Words of PriorityUsageResetPeriod."""


def option_fault(name: str, value: object) -> str:
    """What is wrong with an option of SchedulerParameters; empty if nothing is."""
    if name not in FOLLOWED_OPTIONS:
        names = {*FOLLOWED_OPTIONS, *UNMODELLED_OPTIONS, *CLOCK_ONLY}
        return "" if name in names else str(UnknownName("name in SchedulerParameters", name, names))
    if name not in RANGES:
        return ""
    example = f", as in {name}={FOLLOWED_OPTIONS[name]}"
    if isinstance(value, bool) or not isinstance(value, int):
        return f"{name}={shown(value)} must be a whole number{example}"
    minimum, maximum = RANGES[name]
    if minimum <= value <= maximum or (value == -1 and name in OFF_AT_MINUS_ONE):
        return ""
    return f"{name}={shown(value)} must be from {minimum:,} to {maximum:,}{example}"


def enforced(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words of AccountingStorageEnforce with those that they imply.

    >>> enforced(("safe",)), enforced(("none",))
    (('associations', 'limits', 'safe'), ())
    """
    all_words = {*words, *(implied for word in words for implied in _IMPLIED.get(word, ()))}
    return tuple(sorted(all_words - {"all", "none"}))
