"""What recorders hold before they hand it over."""

from nearcast.trace.recorder import Recorder


def rows_held(recorder: Recorder) -> int:
    return sum(map(len, recorder._rows.values()))
