"""Formats numbers and texts for people: units, thousands, percentages, safe texts."""

import re
from math import isfinite
from typing import Any

NONE = "–"
# Characters that XML 1.0 cannot hold, not even escaped; texts of a trace may have any.
NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(text: object, most: int = 200) -> str:
    """Any value as text of bounded length that pages and plots can hold (not yet escaped)."""
    cleaned = NOT_IN_XML.sub("\ufffd", str(text))
    return cleaned if len(cleaned) <= most else cleaned[: most - 1] + "…"


def is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and not isfinite(value))


def count(value: Any) -> str:
    return NONE if is_missing(value) else f"{round(value):,}"


def number(value: Any) -> str:
    """Four significant digits, with thousands separators."""
    if is_missing(value):
        return NONE
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.3g}"
    return f"{value:.4g}"


def share(value: Any) -> str:
    """In percent. Only exactly 1 is shown as 100 %, and only exactly 0 as 0 %."""
    if is_missing(value):
        return NONE
    percent = 100 * value
    if percent in (0, 100):
        return f"{percent:.0f} %"
    for digits in range(2, 15):
        text = f"{percent:.{digits}f}"
        if float(text) not in (0, 100):
            break
    return f"{text.rstrip('0').rstrip('.')} %"


def _scaled(value: float, units: tuple[str, ...], step: float) -> str:
    place = 0
    # 999.96 would be printed as 1000, which is 1 of the next unit.
    while place < len(units) - 1 and abs(value) >= step * 0.99995:
        value, place = value / step, place + 1
    return f"{value:.4g} {units[place]}" if place else f"{number(value)} {units[0]}"


def size(value: Any) -> str:
    """Bytes, in powers of a thousand."""
    return NONE if is_missing(value) else _scaled(value, ("B", "kB", "MB", "GB", "TB", "PB"), 1000)


def rate(value: Any) -> str:
    return NONE if is_missing(value) else f"{size(value)}/s"


def milliseconds(value: Any) -> str:
    return NONE if is_missing(value) else _scaled(value, ("ms", "s"), 1000)


def seconds(value: Any) -> str:
    return NONE if is_missing(value) else f"{number(value)} s"


def text(value: Any) -> str:
    return NONE if value is None else clean(value)
