"""State vectors of aircraft (ADS-B), as OpenSky's interface answers: JSON with `time`, `states`.

A file is one such answer, or one on each line. A state is an array; what each place in it means is
said by OpenSky's documentation.
"""

from collections.abc import Callable, Iterator
from io import BufferedReader
from math import nan
from typing import Any

import msgspec
from msgspec import Struct

from nearcast.pipeline.movement.fix_collector import FixCollector
from nearcast.space.motion import SECOND
from nearcast.storage import AnyPath, open_input

ICAO24, TIME_POSITION, LON, LAT, BAROMETRIC, GEOMETRIC = 0, 3, 5, 6, 7, 13


class StateVectors(Struct):
    """One answer: all states that were known at a time."""

    time: int | float
    states: list[Any] | None


def read_states(file: AnyPath, found: FixCollector, progress: Callable[[int], None]) -> None:
    """All states with a place. `progress` is told how many are read. Raises ValueError."""
    number = 0
    for answer in _answers(file, found):
        for state in answer.states or ():
            number += 1
            _add_state(state, answer.time, f"state {number}", found)
        progress(number)


def _answers(file: AnyPath, found: FixCollector) -> Iterator[StateVectors]:
    decoder = msgspec.json.Decoder(StateVectors)
    try:
        with BufferedReader(open_input(file)) as whole:
            yield decoder.decode(whole.read())
        return
    except (msgspec.DecodeError, RecursionError) as why:
        problem = str(why)
    usable = False
    with BufferedReader(open_input(file)) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                answer = decoder.decode(line)
            except (msgspec.DecodeError, RecursionError) as why:
                found.skip(f"line {number} is no answer of OpenSky: {why}")
                continue
            usable = True
            yield answer
    if not usable:
        raise ValueError(f"{file} has no state vectors: {problem}")


def _add_state(state: Any, answered: float, where: str, found: FixCollector) -> None:
    if not isinstance(state, list) or len(state) <= BAROMETRIC:
        found.skip(f"{where} is no array of at least {BAROMETRIC + 1} values")
        return
    name, t = state[ICAO24], state[TIME_POSITION]
    t = answered if t is None else t
    heights = (state[GEOMETRIC] if len(state) > GEOMETRIC else None, state[BAROMETRIC])
    altitude = next((height for height in heights if height is not None), nan)
    if not isinstance(name, str) or not name:
        found.skip(f"{where} has no icao24")
    elif state[LON] is None or state[LAT] is None:
        found.skip(f"{where} has no place")
    elif not all(is_real(value) for value in (t, state[LON], state[LAT], altitude)):
        found.skip(f"{where} has a time, place or height that is not a number")
    elif not abs(t) < 1e11:
        found.skip(f"{where} has the time {t}, which is no Unix time in seconds")
    else:
        found.add_one(where, name, round(t * SECOND), state[LON], state[LAT], altitude)


def is_real(value: object) -> bool:
    """Is it a number that a double can hold? JSON has others."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return value != value or abs(value) < 1e300
