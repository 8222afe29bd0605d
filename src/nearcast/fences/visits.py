"""What becomes of the visits of one entity to one fence with `dwell` or `linger`.

Fences without them need no memory: who is inside follows from the places alone. With `dwell` a
visit is remembered from entering until leaving is reported, with `linger` alone from leaving until
then. What becomes due is reported by `fire_due`; it does not matter when that is called, the events
are the same.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct

from nearcast.fences.areas import NEVER
from nearcast.fences.events import CROSS, DWELL, ENTER, LEAVE, LEFT, NONE
from nearcast.space.motion import Time

Spot: TypeAlias = tuple[float, float, float, float]  # x, y, z, direction of the way
# kind, time, when it was decided, reason, place; of a crossing also time and place of its end
Report: TypeAlias = Callable[[int, Time, Time, int, Spot, Time, Any], None]
NO_PLACE = (0.0, 0.0, 0.0)


class FenceVisit(Struct):
    """A visit that is under way, or whose end is not reported yet."""

    entered: Time
    place: Spot = (0.0, 0.0, 0.0, 0.0)
    dwelt: bool = False  # reported
    left: Time = NEVER  # outside since; NEVER: it is inside
    left_place: Spot = (0.0, 0.0, 0.0, 0.0)


def due(visit: FenceVisit, dwell: Time, linger: Time) -> Time:
    """When there is something to report if the entity stays where it is. NEVER: not at all."""
    if visit.left < NEVER:
        return visit.left + linger
    return NEVER if visit.dwelt else min(visit.entered + dwell, NEVER)


def fire_due(
    visit: FenceVisit | None, dwell: Time, linger: Time, until: Time, report: Report
) -> FenceVisit | None:
    """Report what is due at `until` at the latest; return what the visit is then."""
    if visit is None or due(visit, dwell, linger) > until:
        return visit
    moment = due(visit, dwell, linger)
    if visit.left < NEVER:
        report(LEAVE, visit.left, moment, LEFT, visit.left_place, 0, NO_PLACE)
        return None
    report(DWELL, moment, moment, NONE, visit.place, 0, NO_PLACE)
    visit.dwelt = True
    return visit


def report_dwell(
    visit: FenceVisit, dwell: Time, until: Time, decided: Time, report: Report
) -> None:
    """Report that the visit has lasted `dwell`, if it has until then."""
    if not visit.dwelt and visit.entered + dwell <= until:
        visit.dwelt = True
        report(DWELL, visit.entered + dwell, decided, NONE, visit.place, 0, NO_PLACE)


def begin_visit(
    visit: FenceVisit | None, dwell: Time, linger: Time, t: Time, decided: Time, report: Report
) -> FenceVisit | None:
    """Somebody comes in. The visit that goes on, because they were away for less than `linger`;
    None: there is none, and what was under way is reported as ended."""
    if visit is None:
        return None
    if t < visit.left + linger:
        visit.left = NEVER
        report_dwell(visit, dwell, t, decided, report)
        return visit
    report(LEAVE, visit.left, decided, LEFT, visit.left_place, 0, NO_PLACE)
    return None


def end_visit(
    visit: FenceVisit, dwell: Time, linger: Time, t: Time, decided: Time, place: Spot,
    reason: int, report: Report,
) -> FenceVisit | None:  # fmt: skip
    """Somebody is outside from `t` on, or has disappeared, which is reported at once."""
    report_dwell(visit, dwell, t, decided, report)
    if reason == LEFT and linger:
        visit.left, visit.left_place = t, place
        return visit
    report(LEAVE, t, decided, reason, place, 0, NO_PLACE)
    return None


def follow_visit(
    visit: FenceVisit | None, dwell: Time, linger: Time, decided: Time,
    entering: tuple[Time, Spot] | None, leaving: tuple[Time, Spot] | None, reason: int,
    report: Report,
) -> FenceVisit | None:  # fmt: skip
    """One visit of a row: it begins on the way at `entering`, ends on it at `leaving`, or both.

    `decided` is the time of the fix. What was due before must have been reported. Returns what is
    under way afterwards.
    """
    if entering is not None:
        t, place = entering
        visit = begin_visit(visit, dwell, linger, t, decided, report)
        if visit is None and leaving is not None:
            t_out, place_out = leaving
            report(CROSS, t, decided, NONE, place, t_out, place_out)
            report_dwell(FenceVisit(t, place), dwell, t_out, decided, report)
            return None
        if visit is None:
            visit = FenceVisit(t, place)
            report(ENTER, t, decided, NONE, place, 0, NO_PLACE)
    if visit is not None and leaving is not None:
        visit = end_visit(visit, dwell, linger, leaving[0], decided, leaving[1], reason, report)
    return visit


def settle_row(
    visit: FenceVisit | None, dwell: Time, linger: Time, decided: Time, report: Report
) -> FenceVisit | None:
    """After all visits of a row: what its interpolated times have made due already."""
    if visit is None:
        return None
    if visit.left < NEVER:
        if visit.left + linger > decided:
            return visit
        report(LEAVE, visit.left, decided, LEFT, visit.left_place, 0, NO_PLACE)
        return None
    report_dwell(visit, dwell, decided, decided, report)
    return visit
