"""Formulas as programs that kernels can run (`machine`), instead of asking Python about each pair.

A program is the spatial predicates of one formula in postfix: each predicate's expression and then
the side of the region that its value bounds. All programs lie in one array, one after the other.
"""

from typing import Any

import numpy as np

from nearcast.model.expressions import TIME, Arithmetic, Number, Variable
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


class RecordPool:
    """A growing array of stretches of records, with reuse of what was freed."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.array: Any = np.zeros(64, dtype)
        self._used = 0
        self._lengths: dict[int, int] = {}
        self._free: dict[int, list[int]] = {}  # by length

    def put(self, records: Any) -> int:
        """Write them down and return where they begin."""
        length = len(records)
        if self._free.get(length):
            start = self._free[length].pop()
        else:
            start, self._used = self._used, self._used + length
            while self._used > len(self.array):
                self.array = np.concatenate([self.array, np.zeros_like(self.array)])
        self.array[start : start + length] = records
        self._lengths[start] = length
        return start

    def remove(self, start: int) -> None:
        self._free.setdefault(self._lengths.pop(start), []).append(start)

    def length(self, start: int) -> int:
        return self._lengths[start]


class Programs(RecordPool):
    """The programs of formulas, and of bounds that change with time."""

    def __init__(self) -> None:
        super().__init__(INSTRUCTION)

    def add(self, predicates: Predicates) -> int:
        return self.put(compile_region(predicates))

    def add_bound(self, expression: Arithmetic) -> int:
        """A program whose value is one expression's."""
        return self.put(compile_expression(expression))
