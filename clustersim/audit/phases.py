"""What the phases of a job say of the speeds and plans of its allocations."""

from __future__ import annotations

from clustersim.records import EventRecord, JobRecord, batch_of, phase_of
from traces.phases import Phase, parse_phases, seconds_factor, seconds_factors

__all__ = ["factor_of", "stated_phases"]


def stated_phases(record: JobRecord | None) -> tuple[Phase, ...]:
    """The phases of a job by its record; none if it states none, or text that is none."""
    if record is None or not record.phases:
        return ()
    try:
        return parse_phases(record.phases)
    except ValueError:
        return ()


def factor_of(record: JobRecord | None, allocation: EventRecord | None) -> float:
    """By what the seconds of an iteration, or of a logged second, are multiplied to give those of a unit of
    work in the phase of an allocation, with its batch; 1 for a job without phases.
    """
    phases = stated_phases(record)
    if not phases or record is None or allocation is None:
        return 1.0
    phase, batch = phase_of(allocation), batch_of(allocation)
    if phase is None or not 0 <= phase < len(phases):
        return 1.0
    if batch and record.global_batch:
        return seconds_factor(phases[phase].noise, batch, record.global_batch)
    return seconds_factors(phases, None)[phase]
