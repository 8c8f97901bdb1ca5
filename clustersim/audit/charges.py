"""What an allocation is charged, by the run's constants and the job's events so far.

The times of a log are rounded. A job that loses its GPUs within that rounding of the end of a payment, or of
a save, may have worked or not, and saved or not. Either charge is then right, and the one nearer to the log
is taken.
"""

from __future__ import annotations

from itertools import product

from clustersim.overheads import Cycle, Overheads
from clustersim.records import START, EventRecord

from .evidence import RESOLUTION_S
from .totals import ChargeTerms, JobTotals

__all__ = ["terms_of"]


def terms_of(
    event: EventRecord, totals: JobTotals, overheads: Overheads, *,
    parameters: float, cycle: Cycle, error: float,
) -> ChargeTerms:  # fmt: skip
    """The terms of the allocation that `event` makes. `totals`: of its job, as of the event. `parameters`: of
    the job's model. `error`: of a difference of two times of the log.
    """
    if event.event == START:
        return ChargeTerms(cycle, due_s=overheads.start_s(event.gpus))
    nodes = max(1, len(event.placement))
    save_s = overheads.save_s(parameters, nodes)
    shares = overheads.shares_load(parameters)

    def terms(saves: float, loads: bool) -> ChargeTerms:
        charged_here = loads and not shares  # of a load that shares the storage, the log states the end
        due_s = overheads.restart_s(
            parameters, nodes, event.gpus, event.event, saves=saves, loads=charged_here
        )
        save_due = saves if save_s else 0.0
        return ChargeTerms(cycle, loads=loads and shares, due_s=due_s, save_due=save_due, save_s=save_s)

    possible = product(_shares_owed(totals, RESOLUTION_S + 3 * error), _may_load(totals))
    candidates = [terms(saves, loads) for saves, loads in possible]
    return min(candidates, key=lambda candidate: abs((candidate.due_s or 0.0) - event.overhead_s))


def _shares_owed(totals: JobTotals, error: float) -> tuple[float, ...]:
    """The shares of a save that the job may owe: of a new one if it has worked since its last one, else what
    it has not paid of that one.
    """
    if totals.interrupted:
        return (totals.save_due,)
    if totals.unsaved_s > error:
        cycle = totals.cycle
        saving = cycle.interval_s + cycle.save_s - totals.offset_s
        return (1.0, totals.save_due) if saving <= error else (1.0,)
    return (totals.save_due, 1.0) if totals.owed_s <= error else (totals.save_due,)


def _may_load(totals: JobTotals) -> tuple[bool, ...]:
    """Whether the job may have a checkpoint: it has one if it has done work that no failure has undone."""
    work = totals.work
    if work is None or work > totals.work_error:
        return (True,)
    return (False, True) if work > 0 else (False,)
