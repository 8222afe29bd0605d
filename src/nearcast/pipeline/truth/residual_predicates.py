"""The last check of a pair: what outlines, filters and formulas demand, by the functions of
`space` and of the model.

Pairs are checked in groups so that nothing is computed twice: a text is parsed once, attributes are
decoded once per distinct text, and a filter that does not evolve is evaluated once per distinct
attributes. A formula that does not evolve has bounds, so the grid can find its candidates. Outlines
are tested with points in a compiled loop, and with other shapes in Python.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import inf, isinf
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearcast.columns import writable
from nearcast.matching.outline_table import OutlineTable, have_forms, publication_heights
from nearcast.model import predicates
from nearcast.model.subscription import Filter, Formula, Value
from nearcast.pipeline.truth import kernels
from nearcast.space.motion import FOREVER
from nearcast.space.outlines import outline_from_text
from nearcast.space.shapes import Shape
from nearcast.trace.row_values import region_of, shape_of

FormulaBox = tuple[float, float, float, float, float, float]
Integers = NDArray[np.int64]
Places = NDArray[np.int32]
# What a column holds that a table lacks.
DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys(("x", "y", "z", "rx", "ry", "rz", "vx", "vy", "vz", "gx", "gy", "gz"), 0.0),
    "until": None, "outline": None,
}  # fmt: skip
NO_OUTLINE = -1


@lru_cache(65_536)
def formula_box(formula: str) -> FormulaBox:
    """Centre and half-extents of a box around the formula; unbounded if it evolves."""
    parsed = predicates.parse(formula)
    zone = None if parsed.evolves else predicates.box_at(parsed, 0.0)
    if zone is None:
        return 0.0, 0.0, 0.0, inf, inf, inf
    (x, rx), (y, ry), (z, rz) = map(_middle_and_half, (zone.x, zone.y, zone.z))
    return x, y, z, rx, ry, rz


def _middle_and_half(side: predicates.Interval) -> tuple[float, float]:
    middle = side.low + (side.high - side.low) * 0.5
    if not np.isfinite(middle) or isinf(side.high) or isinf(side.low):
        return 0.0, inf
    half = max(side.high - middle, middle - side.low)
    # Far more than any rounding error: the formula itself rejects the candidates that are too many.
    return middle, half + 1e-9 * (half + abs(middle)) + 1e-160


class ResidualPredicates:
    """What interests demand besides place, time and channel; false if they demand nothing."""

    def __init__(self, spans: pa.Table, publications: pa.Table) -> None:
        self._filter, self._filters = _text_codes(spans, "filter")
        self._formula, self._formulas = _text_codes(spans, "formula")
        self._outline, self._outlines = _text_codes(spans, "outline")
        self._published_outline, self._published_outlines = _text_codes(publications, "outline")
        if not self:
            return
        self._spans = spans
        if self._outlines or self._published_outlines:
            self._prepare_outlines(spans, publications)
        self._t = publications.column("t").to_numpy()
        self._since = np.zeros(len(spans), np.int64)
        if "since" in spans.column_names:
            self._since = pc.fill_null(spans.column("since"), 0).to_numpy()
        self._publications = publications
        self._attributes, texts = _text_codes(publications, "attributes")
        self._decoded: list[Mapping[str, Value]] = [
            msgspec.json.decode(text or "{}") for text in texts
        ]
        self._decoded.append({})  # of publications without attributes, whose code is -1

    def _prepare_outlines(self, spans: pa.Table, publications: pa.Table) -> None:
        """The columns that a compiled loop reads."""
        self._table = OutlineTable()
        slots = [self._table.add(outline_from_text(text)) for text in self._outlines]
        self._slots = np.array([*slots, NO_OUTLINE], np.int64)[self._outline]
        known = [*map(outline_from_text, self._published_outlines), None]
        self._of_publications = [known[code] for code in self._published_outline.tolist()]
        until = np.full(len(spans), FOREVER)
        if "until" in spans.column_names:
            until = writable(pc.fill_null(spans.column("until"), FOREVER).to_numpy(), np.int64)
        numbers = [_numbers(spans, name) for name in ("x", "y", "z", "vx", "vy", "vz")]
        self._areas = (_numbers(spans, "t").astype(np.int64), until, np.array(numbers))
        forms = have_forms(self._of_publications)
        points = np.array([name == "point" for name in publications.column("shape").to_pylist()])
        if forms is not None:
            points &= ~forms
        place = np.array([_numbers(publications, name) for name in ("x", "y", "z")])
        self._points = (writable(publications.column("t").to_numpy(), np.int64), points, place)

    def __bool__(self) -> bool:
        return bool(self._filters or self._formulas or self._outlines or self._published_outlines)

    def check_pairs(self, publications: Places, places: Places) -> NDArray[np.bool_]:
        """Which of these pairs of publications and spans their outlines, formulas and filters
        allow."""
        allowed = np.ones(len(places), np.bool_)
        if self._outlines or self._published_outlines:
            outlined = self._outline[places] >= 0
            outlined |= self._published_outline[publications] >= 0
            checked = np.flatnonzero(outlined & (self._formula[places] < 0))
            allowed[checked] = self._outlines_touch(publications[checked], places[checked])
        checked = np.flatnonzero(self._formula[places] >= 0)
        allowed[checked] = self._touched(publications[checked], places[checked])
        checked = np.flatnonzero(allowed & (self._filter[places] >= 0))
        allowed[checked] = self._accepted(publications[checked], places[checked])
        return allowed

    def _outlines_touch(self, publications: Places, places: Places) -> NDArray[np.bool_]:
        """Which of these pairs of a publication and a span without a formula touch."""
        allowed = np.zeros(len(places), np.bool_)
        heights = publication_heights(self._of_publications, len(self._t))
        undecided = kernels.test_outlines(
            self._table.columns, self._slots, heights, self._areas, self._points,
            publications, places, allowed,
        )  # fmt: skip
        if len(undecided):
            rows, place = np.unique(publications[undecided], return_inverse=True)
            spans, row = np.unique(places[undecided], return_inverse=True)
            shapes = _shapes(self._publications.take(rows))
            areas = self._spans.take(spans).to_pylist()
            regions = [region_of({**DEFAULTS, **area}) for area in areas]
            for k, i, j in zip(undecided.tolist(), place.tolist(), row.tolist(), strict=True):
                allowed[k] = regions[j].touches(shapes[i], int(self._t[publications[k]]))
        return allowed

    def _touched(self, publications: Places, places: Places) -> list[bool]:
        @lru_cache(None)
        def formula(code: int, since: int) -> Formula:
            return Formula(self._formulas[code], since)

        rows, place = np.unique(publications, return_inverse=True)
        shapes = _shapes(self._publications.take(rows))
        t = self._t[publications].tolist()
        return [
            formula(code, since).touches(shapes[i], at)
            for code, since, i, at in zip(
                self._formula[places].tolist(), self._since[places].tolist(), place.tolist(), t,
                strict=True,
            )
        ]  # fmt: skip

    def _accepted(self, publications: Places, places: Places) -> NDArray[np.bool_]:
        condition, attributes = self._filter[places], self._attributes[publications]
        since = self._since[places]
        evolving = np.array([predicates.parse(text).evolves for text in self._filters])
        moment = np.where(evolving[condition], self._t[publications], 0)
        # A filter that does not evolve gives the same answer at all times.
        question = np.column_stack([condition, attributes, np.where(moment, since, 0), moment])
        distinct, place = _distinct_rows(question)

        @lru_cache(None)
        def accepts(code: int, since: int) -> Callable[[Any, int], bool]:
            return Filter(self._filters[code], since).accepts

        answers = [
            accepts(code, since)(self._decoded[attributes], t)
            for code, attributes, since, t in distinct.tolist()
        ]
        return np.array(answers, np.bool_)[place]


def _distinct_rows(rows: Integers) -> tuple[Integers, Integers]:
    """Each distinct row once, and the index of every row among them."""
    order = np.lexsort(rows.T)
    ordered = rows[order]
    new = np.ones(len(rows), np.bool_)
    new[1:] = np.any(ordered[1:] != ordered[:-1], axis=1)
    place = np.empty(len(rows), np.int64)
    place[order] = np.cumsum(new) - 1
    return ordered[new], place


def _text_codes(table: pa.Table, name: str) -> tuple[Integers, list[str]]:
    """Each text as its index in the list of distinct texts (-1: null), and that list."""
    if name not in table.column_names or table.column(name).null_count == len(table):
        return np.full(len(table), -1), []
    texts = table.column(name).combine_chunks()
    if not pa.types.is_dictionary(texts.type):
        texts = texts.dictionary_encode()
    return pc.fill_null(texts.indices, -1).to_numpy().astype(np.int64), texts.dictionary.to_pylist()


def _numbers(table: pa.Table, name: str) -> NDArray[np.float64]:
    """A column; zeros if the table lacks it."""
    if name not in table.column_names:
        return np.zeros(len(table))
    return np.asarray(table.column(name).to_numpy())


def _shapes(publications: pa.Table) -> list[Shape]:
    return [shape_of({**DEFAULTS, **row}) for row in publications.to_pylist()]
