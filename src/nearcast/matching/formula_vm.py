"""Formulas as programs for a small stack machine, which compiled loops run.

A program is the spatial predicates of one formula in postfix: the expression of each predicate and
then the side of the region that its value bounds. All programs lie in one array, one after the
other. `locate_region` runs a program for one moment and gives what `predicates.box_at` gives;
`bound_region` runs it over a slice of time and gives what `intervals.swept_box` gives (tests
compare them). A run ends at the first part without a finite value.
"""

from math import cos, inf, isfinite, isnan, nan, pi, sin, sqrt
from typing import Any

import numpy as np
from numba import njit

from nearcast.columns import RecordPool
from nearcast.model import predicates
from nearcast.model.expressions import TIME, Arithmetic, Number, Variable
from nearcast.model.intervals import LARGEST_ANGLE, SLACK, UNSURE
from nearcast.model.predicates import AXES, Predicates, spatial

INSTRUCTION = np.dtype([("code", np.int32), ("side", np.int32), ("number", np.float64)])

# What an instruction does: it pushes a number or the time, works on the top of the stack, bounds a
# side of the region, or ends the program.
NUMBER, SECONDS, SIDE, STOP = 0, 1, 2, 3
ADD, SUBTRACT, MULTIPLY, DIVIDE, LEAST, GREATEST = 4, 5, 6, 7, 8, 9  # of two
NEGATE, MAGNITUDE, SINE, COSINE, ROOT = 10, 11, 12, 13, 14  # of one
CODES = {
    "+": ADD, "-": SUBTRACT, "*": MULTIPLY, "/": DIVIDE, "min": LEAST, "max": GREATEST,
    "negate": NEGATE, "abs": MAGNITUDE, "sin": SINE, "cos": COSINE, "sqrt": ROOT,
}  # fmt: skip

# A side: the axis, and whether it is a lower bound, an upper bound, a strict one.
AXIS, LOWER, UPPER, STRICT = 3, 4, 8, 16
SIDES = {
    ">": LOWER | STRICT, ">=": LOWER, "<": UPPER | STRICT, "<=": UPPER, "==": LOWER | UPPER,
}  # fmt: skip

STACK = 64  # more than a tree of the greatest depth needs

NO_PROGRAM = -1

Instructions = list[tuple[int, int, float]]


def compile_region(predicates: Predicates) -> Instructions:
    instructions: Instructions = []
    for predicate in spatial(predicates):
        assert isinstance(predicate.expression, Arithmetic)
        _append_postfix(predicate.expression, instructions)
        side = AXES.index(predicate.attribute) | SIDES[predicate.operator]
        instructions.append((SIDE, side, 0.0))
    return [*instructions, (STOP, 0, 0.0)]


def compile_expression(expression: Arithmetic) -> Instructions:
    instructions: Instructions = []
    _append_postfix(expression, instructions)
    return [*instructions, (STOP, 0, 0.0)]


def _append_postfix(tree: Arithmetic, instructions: Instructions) -> None:
    if isinstance(tree, Number):
        instructions.append((NUMBER, 0, tree.value))
    elif isinstance(tree, Variable):
        assert tree.name == TIME, "all other variables are bound"
        instructions.append((SECONDS, 0, 0.0))
    else:
        code = CODES[tree.function]
        for i, argument in enumerate(tree.arguments):
            _append_postfix(argument, instructions)
            if i > 0 or len(tree.arguments) == 1:  # the least of three is that of two and a third
                instructions.append((code, 0, 0.0))


def count_instructions(instructions: Instructions) -> int:
    """What running them costs, in steps: a sine costs about as much as four other instructions."""
    return sum(4 if code in (SINE, COSINE) else 1 for code, *_ in instructions)


class Programs(RecordPool):
    """The programs of formulas, and of bounds that change with time."""

    def __init__(self) -> None:
        super().__init__(INSTRUCTION)

    def add(self, predicates: Predicates) -> int:
        return self.put(compile_region(predicates))

    def add_bound(self, expression: Arithmetic) -> int:
        """A program whose value is one expression's."""
        return self.put(compile_expression(expression))


# Running programs.

touching: Any = njit(predicates.box_touches)

VALUELESS, EMPTY, SOMEWHERE = 0, 1, 2


@njit(inline="always")
def apply_binary(code: int, a: float, b: float) -> float:
    if code == ADD:
        return a + b
    if code == SUBTRACT:
        return a - b
    if code == MULTIPLY:
        return a * b
    if code == LEAST:
        return min(a, b)
    if code == GREATEST:
        return max(a, b)
    return a / b if b != 0.0 else inf


@njit(inline="always")
def apply_unary(code: int, a: float) -> float:
    if code == NEGATE:
        return -a
    if code == MAGNITUDE:
        return abs(a)
    if code == SINE:
        return sin(a)
    if code == COSINE:
        return cos(a)
    return sqrt(a) if a >= 0.0 else inf


@njit(cache=True)
def locate_region(programs: Any, start: int, t: float, stack: Any, ends: Any) -> int:
    """Where is the region at `t`? Writes lows, highs and, as 0 or 1, which of them are strict."""
    ends[0, :], ends[1, :], ends[2:, :] = -inf, inf, 0.0
    top, at = 0, start
    while programs[at].code != STOP:
        code = programs[at].code
        if code == SIDE:
            top -= 1
            side, strict = programs[at].side, 1.0 if programs[at].side & STRICT else 0.0
            axis, bound = side & AXIS, stack[top, 0]
            if side & LOWER and bound >= ends[0, axis]:
                ends[2, axis] = strict if bound > ends[0, axis] else max(strict, ends[2, axis])
                ends[0, axis] = bound
            if side & UPPER and bound <= ends[1, axis]:
                ends[3, axis] = strict if bound < ends[1, axis] else max(strict, ends[3, axis])
                ends[1, axis] = bound
        elif code in (NUMBER, SECONDS):
            stack[top, 0] = programs[at].number if code == NUMBER else t
            top += 1
        elif code >= NEGATE:
            stack[top - 1, 0] = apply_unary(code, stack[top - 1, 0])
        else:
            top -= 1
            stack[top - 1, 0] = apply_binary(code, stack[top - 1, 0], stack[top, 0])
        if top > 0 and not isfinite(stack[top - 1, 0]):
            return VALUELESS
        at += 1
    for axis in range(3):
        low, high = ends[0, axis], ends[1, axis]
        if low > high or (low == high and (ends[2, axis] or ends[3, axis])):
            return EMPTY
    return SOMEWHERE


@njit(cache=True)
def value(programs: Any, start: int, t: float, stack: Any) -> float:
    """What one expression is at `t`; NaN if it has no value then."""
    top, at = 0, start
    while programs[at].code != STOP:
        code = programs[at].code
        if code in (NUMBER, SECONDS):
            stack[top, 0] = programs[at].number if code == NUMBER else t
            top += 1
        elif code >= NEGATE:
            stack[top - 1, 0] = apply_unary(code, stack[top - 1, 0])
        else:
            top -= 1
            stack[top - 1, 0] = apply_binary(code, stack[top - 1, 0], stack[top, 0])
        if not isfinite(stack[top - 1, 0]):
            return nan
        at += 1
    return float(stack[0, 0])


# Bounds over a slice: `intervals`, written out once more.


@njit(inline="always")
def round_outward(low: float, high: float) -> Any:
    if low == inf or high == -inf:
        return inf, -inf
    return np.nextafter(low, -inf), np.nextafter(high, inf)


@njit(inline="always")
def bound_corners(p: float, q: float, r: float, s: float) -> Any:
    p, q = 0.0 if isnan(p) else p, 0.0 if isnan(q) else q
    r, s = 0.0 if isnan(r) else r, 0.0 if isnan(s) else s
    return round_outward(min(p, q, r, s), max(p, q, r, s))


@njit(inline="always")
def contains_turn(low: float, high: float, angle: float) -> Any:
    turns = (high + SLACK - angle) // (2 * pi)
    return angle + 2 * pi * turns >= low - SLACK


@njit(inline="always")
def bound_wave(first: float, second: float, a: float, b: float, peak: float) -> Any:
    if not (a >= -LARGEST_ANGLE and b <= LARGEST_ANGLE and b - a < 2 * pi):
        return -1.0, 1.0
    low = -1.0 if contains_turn(a, b, peak + pi) else max(min(first, second) - UNSURE, -1.0)
    high = 1.0 if contains_turn(a, b, peak) else min(max(first, second) + UNSURE, 1.0)
    return low, high


@njit(inline="always")
def bound_binary(code: int, a: float, b: float, c: float, d: float) -> Any:
    """What numbers from a to b and from c to d can give together; low above high: nothing."""
    if code == ADD:
        return round_outward(a + c, b + d)
    if code == SUBTRACT:
        return round_outward(a - d, b - c)
    if code == MULTIPLY:
        return bound_corners(a * c, a * d, b * c, b * d)
    if code == LEAST:
        return min(a, c), min(b, d)
    if code == GREATEST:
        return max(a, c), max(b, d)
    if c == 0.0 and d == 0.0:
        return inf, -inf
    if c <= 0.0 <= d:
        return -inf, inf
    return bound_corners(a / c, a / d, b / c, b / d)


@njit(inline="always")
def bound_unary(code: int, a: float, b: float) -> Any:
    if code == NEGATE:
        return -b, -a
    if code == MAGNITUDE:
        if a <= 0.0 <= b:
            return 0.0, max(-a, b)
        return (a, b) if a > 0.0 else (-b, -a)
    if code == SINE:
        return bound_wave(sin(a), sin(b), a, b, pi / 2)
    if code == COSINE:
        return bound_wave(cos(a), cos(b), a, b, 0.0)
    if b < 0.0:
        return inf, -inf
    return round_outward(sqrt(max(a, 0.0)), sqrt(b))


@njit(cache=True)
def bound_region(programs: Any, start: int, low: float, high: float, stack: Any, ends: Any) -> None:
    """The box around the region while `t` goes from low to high; lows above highs: nowhere."""
    ends[0, :], ends[1, :] = -inf, inf
    top, at = 0, start
    while programs[at].code != STOP:
        code = programs[at].code
        if code == SIDE:
            top -= 1
            side = programs[at].side
            axis = side & AXIS
            if side & LOWER:
                ends[0, axis] = max(ends[0, axis], stack[top, 0])
            if side & UPPER:
                ends[1, axis] = min(ends[1, axis], stack[top, 1])
        elif code == NUMBER:
            stack[top, 0] = stack[top, 1] = programs[at].number
            top += 1
        elif code == SECONDS:
            stack[top, 0], stack[top, 1] = low, high
            top += 1
        elif code >= NEGATE:
            a, b = bound_unary(code, stack[top - 1, 0], stack[top - 1, 1])
            stack[top - 1, 0], stack[top - 1, 1] = a, b
        else:
            top -= 1
            a, b = bound_binary(
                code, stack[top - 1, 0], stack[top - 1, 1], stack[top, 0], stack[top, 1]
            )
            stack[top - 1, 0], stack[top - 1, 1] = a, b
        nothing = top > 0 and stack[top - 1, 0] > stack[top - 1, 1]
        if nothing or np.any(ends[0] > ends[1]):
            ends[0, :], ends[1, :] = inf, -inf
            return
        at += 1


@njit(cache=True)
def bound(rows: Any, places: Any, programs: Any, lo: int, hi: int) -> None:
    """Let the rows of these formulas have the boxes that their regions stay in from lo to hi."""
    stack, ends = np.empty((STACK, 2)), np.empty((4, 3))
    for place in places:
        row = rows[place]
        begin = (lo - row.since) / 1e6 if lo > row.since else 0.0
        end = (hi - row.since) / 1e6 if hi > row.since else 0.0
        bound_region(programs, row.program, begin, end, stack, ends)
        row.vx, row.vy, row.vz = ends[0, 0], ends[0, 1], ends[0, 2]
        row.gx, row.gy, row.gz = ends[1, 0], ends[1, 1], ends[1, 2]
