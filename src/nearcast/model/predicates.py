"""Subscriptions as predicates: `x >= -3 + t, x <= 3 + t, kind == "apple" or ripe == true`.

A predicate compares an attribute with an expression, which may change with the seconds `t` since
submission: the evolving subscriptions of [Evolving] section 2. Predicates over x, y and z describe
a region, the `PredicateBox`; all others filter a publication's attributes. Predicates travel as
text, so `parse` remembers what it has read.

    predicates = list | "{" list "}"
    list       = item { "," item }
    item       = choice { "or" choice }
    choice     = predicate | "(" predicate { "or" predicate } ")"
    predicate  = attribute ("<" | "<=" | ">" | ">=" | "==" | "!=") expression
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from math import inf, sqrt
from operator import eq, ge, gt, le, lt, ne
from typing import TypeAlias

from msgspec import Struct

from nearcast.model.expressions import (
    RESERVED,
    TIME,
    Boolean,
    Evaluator,
    Expression,
    ExpressionParser,
    Text,
    Value,
    Variable,
    evaluator,
    walk,
)
from nearcast.space.boxes import BoxBounds, box_around
from nearcast.space.shapes import DISC, Shape, cuboid

MAX_PREDICATES = 32
AXES = ("x", "y", "z")
# Matchers parse the same texts often. One takes some 5 kB once it has been evaluated;
# the worst text that a client can send takes 75 kB, and 300 kB evaluated; a
# node's limit on steps prevents that.
REMEMBERED_TEXTS = 8_192

COMPARISONS: Mapping[str, Callable[..., bool]] = {
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
    "==": eq,
    "!=": ne,
}


class Predicate(Struct, frozen=True, dict=True):
    """[Evolving] section 2: (a_i op_i fun_i(t))."""

    attribute: str
    operator: str
    expression: Expression

    @cached_property
    def evolves(self) -> bool:
        return Variable(TIME) in walk(self.expression)

    @cached_property
    def evaluate(self) -> Evaluator:
        """The bound as a function of `t`."""
        return evaluator(self.expression)

    @property
    def constant(self) -> Value | None:
        """The bound, if it never changes."""
        return None if self.evolves else self.evaluate(0.0)


Clause: TypeAlias = tuple[Predicate, ...]  # one of them must hold
# One end of an interval as a function of time, and whether it is strict.
_Side: TypeAlias = tuple[Evaluator, bool]


class Predicates(Struct, frozen=True, dict=True):
    """A subscription's predicates, in the order they were written.

    All `items` must hold, and one predicate at least of each of the `choices`. So whoever looks for
    what a publication needs at the least may look at the items alone.
    """

    items: tuple[Predicate, ...]
    choices: tuple[Clause, ...] = ()  # of two predicates or more

    @cached_property
    def clauses(self) -> tuple[Clause, ...]:
        """Of each, one predicate at least must hold: items, then choices."""
        return *((item,) for item in self.items), *self.choices

    @cached_property
    def evolves(self) -> bool:
        """Does any bound change by itself as time goes by?"""
        return any(predicate.evolves for clause in self.clauses for predicate in clause)

    # Computed once, because matching needs them often.

    @cached_property
    def _spatial(self) -> tuple[Predicate, ...]:
        return tuple(one for clause in self.clauses for one in clause if one.attribute in AXES)

    @cached_property
    def _others(self) -> tuple[Predicate, ...]:
        return tuple(one for clause in self.clauses for one in clause if one.attribute not in AXES)

    @cached_property
    def _tests(self) -> tuple[tuple[tuple[str, Callable[..., bool], Evaluator], ...], ...]:
        """By clause; of a formula, whose predicates are over x, y and z, there are none."""
        return tuple(
            tuple((one.attribute, COMPARISONS[one.operator], one.evaluate) for one in clause)
            for clause in self.clauses
            if clause[0].attribute not in AXES
        )

    @cached_property
    def _sides(self) -> tuple[tuple[tuple[_Side, ...], tuple[_Side, ...]], ...]:
        """For each axis, what bounds it from below and what bounds it from above."""
        return tuple((self._bounds(axis, ">"), self._bounds(axis, "<")) for axis in AXES)

    def _bounds(self, axis: str, strict: str) -> tuple[_Side, ...]:
        return tuple(
            (item.evaluate, item.operator == strict)
            for item in self._spatial
            if item.attribute == axis and item.operator in (strict, f"{strict}=", "==")
        )


@lru_cache(REMEMBERED_TEXTS)
def parse(text: str, variables: frozenset[str] = frozenset()) -> Predicates:
    """Read predicates in whose expressions `t` and `variables` may occur; or FormulaError.

    Only those without variables have values: `variables.bind` writes numbers in their places.
    """
    clauses = [clause for _, clause in parse_with_text(text, variables)]
    return Predicates(
        tuple(clause[0] for clause in clauses if len(clause) == 1),
        tuple(clause for clause in clauses if len(clause) > 1),
    )


def parse_with_text(text: str, variables: frozenset[str] = frozenset()) -> list[tuple[str, Clause]]:
    """Each clause with its part of the text."""
    parser = ExpressionParser(text, variables)
    braced = parser.accept("{")
    clauses: list[tuple[str, Clause]] = []
    number = 0
    while not clauses or parser.accept(","):
        begin = parser.token.position
        clause = _parse_clause(parser, MAX_PREDICATES - number)
        number += len(clause)
        clauses.append((text[begin : parser.taken], clause))
    if braced:
        parser.expect("}")
    parser.take_kind("end", "',' or the end")
    return clauses


def _parse_clause(parser: ExpressionParser, room: int) -> Clause:
    """Predicates with `or` between them, some of which may be in parentheses together."""
    found: list[Predicate] = []
    wrapped, first = False, parser.token.position
    while not found or parser.accept("or"):
        begin = parser.token.position
        opened = not wrapped and parser.accept("(")
        wrapped = wrapped or opened
        if len(found) == room:
            raise parser.error(f"more than {MAX_PREDICATES} predicates", begin)
        found.append(_parse_predicate(parser))
        if wrapped and parser.token.text != "or":
            parser.expect(")")
            wrapped = False
    if len(found) > 1 and any(one.attribute in AXES for one in found):
        raise parser.error("x, y and z have no `or`: subscribe to each part of a region", first)
    return tuple(found)


def _parse_predicate(parser: ExpressionParser) -> Predicate:
    if parser.token.text in RESERVED:
        raise parser.expected("an attribute")
    attribute = parser.take_kind("name", "an attribute").text
    comparison = parser.take_kind("comparison", "one of < <= > >= == !=")
    position = parser.token.position
    expression = parser.expression()
    if isinstance(expression, Boolean) and comparison.text not in ("==", "!="):
        raise parser.error("true and false know only == and !=", comparison.position)
    if attribute in AXES and comparison.text == "!=":
        raise parser.error(f"{attribute} cannot be compared with !=", comparison.position)
    if attribute in AXES and isinstance(expression, Text | Boolean):
        raise parser.error(f"{attribute} can only be compared with numbers", position)
    return Predicate(attribute, comparison.text, expression)


def spatial(predicates: Predicates) -> tuple[Predicate, ...]:
    """The predicates over x, y and z: together, the region."""
    return predicates._spatial


def has_bounded_axis(predicates: Predicates) -> bool:
    """Is the region bounded from below and from above, along one axis at least?"""
    return any(lows and highs for lows, highs in predicates._sides)


def constant_bounds(items: Iterable[Predicate], attribute: str) -> tuple[float, float]:
    """What comparisons with constant numbers leave of an attribute or axis: the lowest and the
    highest number, in the wrong order if they leave nothing."""
    low, high = -inf, inf
    for item in items:
        bound = item.constant if item.attribute == attribute else None
        if isinstance(bound, float):
            if item.operator in (">", ">=", "=="):
                low = max(low, bound)
            if item.operator in ("<", "<=", "=="):
                high = min(high, bound)
    return low, high


def others(predicates: Predicates) -> tuple[Predicate, ...]:
    """The predicates over a publication's attributes: together, the filter."""
    return predicates._others


def accepts(predicates: Predicates, attributes: Mapping[str, Value], t: float) -> bool:
    """Do these attributes satisfy every predicate that is not over x, y or z?"""
    return test_attributes(predicates, attributes, t) is True


def test_attributes(
    predicates: Predicates, attributes: Mapping[str, Value], t: float
) -> bool | None:
    """As `accepts`; None if it is no because of a fault: no value at `t`, or a clash of types."""
    for clause in predicates._tests:
        outcome: bool | None = False
        for attribute, compare, evaluate in clause:
            one = _test(attributes.get(attribute), compare, evaluate(t))
            if one:
                break
            outcome = None if one is None else outcome
        else:
            return outcome
    return True


def _test(value: Value | None, compare: Callable[..., bool], bound: Value | None) -> bool | None:
    if not _comparable(value, bound):
        return False if value is None else None
    return compare(value, bound)


# By clause.
FrozenTests: TypeAlias = tuple[tuple[tuple[str, Callable[..., bool], Value | None], ...], ...]


def freeze_tests(predicates: Predicates, t: float) -> FrozenTests:
    """The tests of attributes with the bounds that they have at `t`: they evolve no more."""
    return tuple(
        tuple((attribute, compare, evaluate(t)) for attribute, compare, evaluate in clause)
        for clause in predicates._tests
    )


def run_frozen_tests(tests: FrozenTests, attributes: Mapping[str, Value]) -> bool | None:
    """As `test_attributes`, with frozen tests."""
    for clause in tests:
        outcome: bool | None = False
        for attribute, compare, bound in clause:
            one = _test(attributes.get(attribute), compare, bound)
            if one:
                break
            outcome = None if one is None else outcome
        else:
            return outcome
    return True


def has_values(predicates: Predicates, t: float) -> bool:
    """Has every bound over x, y and z a value at `t`?"""
    return all(item.evaluate(t) is not None for item in predicates._spatial)


def _comparable(value: Value | None, bound: Value | None) -> bool:
    """Two strings, two booleans or two numbers; a boolean is no number, and NaN is none either.

    Python compares an integer with a float exactly, however large it is, so nothing is rounded.
    """
    if isinstance(bound, str):
        return isinstance(value, str)
    if isinstance(bound, bool) or isinstance(value, bool):
        return isinstance(bound, bool) and isinstance(value, bool)
    return bound is not None and isinstance(value, (int, float)) and value == value


class Interval(Struct, frozen=True):
    """The numbers from `low` to `high`; a strict side does not contain its end."""

    low: float = -inf
    high: float = inf
    strict_low: bool = False
    strict_high: bool = False


EVERY_NUMBER = Interval()


class PredicateBox(Struct, frozen=True):
    """Where all the spatial predicates hold at one moment: an interval for each axis."""

    x: Interval = EVERY_NUMBER
    y: Interval = EVERY_NUMBER
    z: Interval = EVERY_NUMBER

    def touches(
        self, kind: int, x: float, y: float, z: float, rx: float, ry: float, rz: float
    ) -> bool:
        """Does the closed shape (see `space.shapes`) share a point with the zone?"""
        a, b, c = self.x, self.y, self.z
        return box_touches(
            (a.low, b.low, c.low), (a.high, b.high, c.high),
            (a.strict_low, b.strict_low, c.strict_low),
            (a.strict_high, b.strict_high, c.strict_high),
            kind, x, y, z, rx, ry, rz,
        )  # fmt: skip

    def touches_shape(self, shape: Shape) -> bool:
        """The same for a shape that may have an outline; the zone is closed for an outline."""
        s = shape
        if not self.touches(s.kind, s.x, s.y, s.z, s.rx, s.ry, s.rz):
            return False
        return s.outline is None or self._closed_part(box_around(s)).touches(s)

    def _closed_part(self, around: BoxBounds) -> Shape:
        """The part of the zone, which may be unbounded, that is inside of this box."""
        middles, halves = [], []
        for side, low, high in zip((self.x, self.y, self.z), *around, strict=True):
            low, high = max(side.low, low), min(side.high, high)
            middles.append((low + high) / 2)
            halves.append(max(high - low, 0.0) / 2)
        return cuboid(*middles, *halves)


def box_touches(
    low: Sequence[float], high: Sequence[float],
    strict_low: Sequence[bool], strict_high: Sequence[bool],
    kind: int, x: float, y: float, z: float, rx: float, ry: float, rz: float,
) -> bool:  # fmt: skip
    """Does a closed shape share a point with the zone between these ends?

    Plain numbers, so that the very same function serves Python objects and numba kernels.
    """
    centre, extents = (x, y, z), (rx, ry, rz)
    if kind != DISC:
        for axis in range(3):
            begin, end = centre[axis] - extents[axis], centre[axis] + extents[axis]
            if not (end >= low[axis] and begin <= high[axis]):
                return False
            if (strict_low[axis] and end == low[axis]) or (
                strict_high[axis] and begin == high[axis]
            ):
                return False
        return True
    total, excluded = 0.0, False
    for axis in range(3):
        near = centre[axis]
        if near < low[axis]:
            near = low[axis]
        elif near > high[axis]:
            near = high[axis]
        total += (centre[axis] - near) * (centre[axis] - near)
        if (strict_low[axis] and near == low[axis]) or (strict_high[axis] and near == high[axis]):
            excluded = True
    distance = sqrt(total)
    # Just touching, they share the nearest point alone, if no strict side leaves it out.
    return distance < rx or (distance == rx and not excluded)


def box_at(predicates: Predicates, t: float) -> PredicateBox | None:
    """The region at `t` seconds after submission; None if it is empty or has no value then."""
    intervals = []
    for lows, highs in predicates._sides:
        interval = _intersect_sides(lows, highs, t) if lows or highs else EVERY_NUMBER
        if interval is None:
            return None
        intervals.append(interval)
    return PredicateBox(*intervals)


def _intersect_sides(
    lows: tuple[_Side, ...], highs: tuple[_Side, ...], t: float
) -> Interval | None:
    """What all the sides leave; at equal bounds, the strict one leaves less."""
    low, high, strict_low, strict_high = -inf, inf, False, False
    for evaluate, strict in lows:
        bound = evaluate(t)
        if not isinstance(bound, float):
            return None
        if bound > low:
            low, strict_low = bound, strict
        elif bound == low:
            strict_low = strict_low or strict
    for evaluate, strict in highs:
        bound = evaluate(t)
        if not isinstance(bound, float):
            return None
        if bound < high:
            high, strict_high = bound, strict
        elif bound == high:
            strict_high = strict_high or strict
    if low > high or (low == high and (strict_low or strict_high)):
        return None
    return Interval(low, high, strict_low, strict_high)
