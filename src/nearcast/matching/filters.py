"""Filters as tables that a kernel can test, without a Python call for each pair.

A filter is a sequence of tests, one for each predicate: a column of an attribute, an operator and a
bound. Of tests that are tied by OR, one must hold. A bound that changes with time has a program
(`formula_vm`), which runs once for each moment, not for each pair. The attributes of a batch become
values once, and only those that some filter uses. Text is compared as UTF-8, whose order is that of
code points, as Python's.

`residual_check.check_residual` is the oracle. The kernel leaves to it what floats cannot represent:
integers beyond 2**53.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import isnan
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import njit

from nearcast.columns import RecordPool, SlotAllocator, grow
from nearcast.matching.formula_vm import (
    NO_PROGRAM,
    STACK,
    Programs,
    compile_expression,
    compile_region,
    count_instructions,
    value,
)
from nearcast.matching.matcher import Integers
from nearcast.model.expressions import Boolean, Text
from nearcast.model.predicates import (
    REMEMBERED_TEXTS,
    Predicate,
    others,
    parse,
    spatial,
)
from nearcast.model.publication import Publication
from nearcast.model.subscription import Filter, Formula, Subscription, Value
from nearcast.space.motion import Moving, Path, Time

# Kinds of values and bounds. The oracle decides about ODD values.
NUMBER, TRUTH, TEXT, ODD = 1, 2, 3, 4
EXACT = 2**53  # whole numbers up to here are floats without rounding
# An operator is a set of bits: may the value be less than the bound (1), equal (2), greater (4)?
OPERATORS = {"<": 1, "<=": 3, ">": 4, ">=": 6, "==": 2, "!=": 5}
OR = 8  # a further bit: this test holds, or the next one
NO, YES, FAULT, UNDECIDED = 0, 1, 2, 3
BYTES_A_STEP = 8  # of text, compared in one step
OUTLINE_BYTES_A_STEP = 64  # four vertices

# The first record of a filter is its head: how many tests follow (`column`), since when it counts
# seconds (`text`), and for which moment its bounds were computed (`program`).
TEST = np.dtype(
    [
        ("program", np.int64), ("bound", np.float64), ("text", np.int64),
        ("length", np.int32), ("column", np.int32), ("operator", np.int32), ("kind", np.int32),
    ]
)  # fmt: skip
NEVER = -(2**63)
BatchAttributes: TypeAlias = Sequence[Mapping[str, Value]]  # attributes, by publication

# An attribute of a publication.
VALUE = np.dtype(
    [
        ("number", np.float64), ("text", np.int64), ("length", np.int64), ("column", np.int64),
        ("kind", np.int64),
    ]
)  # fmt: skip


class StepCount(NamedTuple):
    """The cost of evaluating a formula and a filter, in steps."""

    pair: int = 0  # for each publication
    moment: int = 0  # and once for each moment, to compute bounds that change with time


NO_STEPS = StepCount()


def count_steps(subscription: Subscription) -> StepCount:
    """The most that the subscription's formula, outline and filter cost."""
    region, condition = subscription.region, subscription.filter
    if isinstance(region, Formula):
        one = count_text_steps(region.text)
    else:
        one = count_outline_steps(region)
        if condition is None:
            return one
    other = count_text_steps(condition.text) if condition is not None else NO_STEPS
    return StepCount(one.pair + other.pair, one.moment + other.moment)


def count_outline_steps(region: Moving | Path) -> StepCount:
    """The same for the outline of a region's shape: a step tests some vertices."""
    shape = region.legs[0].shape if isinstance(region, Path) else region.shape
    if shape.outline is None:
        return NO_STEPS
    return StepCount(1 + len(shape.outline.coordinates) // OUTLINE_BYTES_A_STEP, 0)


@lru_cache(REMEMBERED_TEXTS)
def count_text_steps(text: str) -> StepCount:
    """The same for the text of a formula or a filter."""
    predicates = parse(text)
    sides, pair = spatial(predicates), sum(map(len, predicates.clauses))
    moment = count_instructions(compile_region(predicates)) if sides else 0
    for predicate in others(predicates):
        expression = predicate.expression
        if isinstance(expression, Text):
            pair += len(expression.value.encode()) // BYTES_A_STEP
        elif predicate.evolves and not isinstance(expression, Boolean):
            moment += count_instructions(compile_expression(expression))
    return StepCount(pair, moment)


class Filters:
    """The filters of all rows, and the columns of the attributes that they use."""

    def __init__(self, programs: Programs) -> None:
        self.tests = RecordPool(TEST)
        self.texts = RecordPool(np.dtype(np.uint8))
        self._programs = programs
        self._columns: dict[str, tuple[int, int]] = {}  # by attribute: its column, and its tests
        self._names: dict[int, str] = {}
        self._slots = SlotAllocator()  # of columns
        self._seen: Integers = np.zeros(64, np.int64)
        # Rows with the same filter share it. The filter that became unused last is kept, because
        # a subscription that moves is dropped and put again.
        self._starts: dict[tuple[str, Time], int] = {}
        self._users: dict[int, int] = {}
        self._keys: dict[int, tuple[str, Time]] = {}
        self._unused = -1

    def add(self, condition: Filter) -> int:
        """Where the filter's tests begin; new ones are added."""
        predicates = condition.parsed
        key = condition.text, condition.since if predicates.evolves else 0
        start = self._starts.get(key)
        if start is None:
            tests = [
                self._test(one, 0 if one is clause[-1] else OR)
                for clause in predicates.clauses
                for one in clause
            ]
            head = (NEVER, 0.0, condition.since, 0, len(tests), 0, 0)
            start = self.tests.put([head, *tests])
            self._starts[key], self._keys[start], self._users[start] = start, key, 0
        self._users[start] += 1
        return start

    def remove(self, start: int) -> None:
        self._users[start] -= 1
        if not self._users[start]:
            unused, self._unused = self._unused, start
            if unused != start and self._users.get(unused) == 0:
                self._forget(unused)

    def _forget(self, start: int) -> None:
        del self._users[start], self._starts[self._keys.pop(start)]
        for test in self.tests.array[start + 1 : start + self.tests.length(start)]:
            if test["program"] != NO_PROGRAM:
                self._programs.remove(int(test["program"]))
            if test["kind"] == TEXT:
                self.texts.remove(int(test["text"]))
            self._leave(int(test["column"]))
        self.tests.remove(start)

    def _test(self, predicate: Predicate, tied: int) -> tuple[Any, ...]:
        expression, column = predicate.expression, self._enter(predicate.attribute)
        operator = OPERATORS[predicate.operator] | tied
        if isinstance(expression, Text):
            text = expression.value.encode()
            where = self.texts.put(np.frombuffer(text or b"\0", np.uint8))
            return NO_PROGRAM, 0.0, where, len(text), column, operator, TEXT
        if isinstance(expression, Boolean):
            return NO_PROGRAM, float(expression.value), 0, 0, column, operator, TRUTH
        if predicate.evolves:
            start = self._programs.add_bound(expression)
            return start, 0.0, 0, 0, column, operator, NUMBER
        constant = predicate.constant
        assert constant is not None, "the parser refuses a constant without a value"
        return NO_PROGRAM, constant, 0, 0, column, operator, NUMBER

    def _enter(self, attribute: str) -> int:
        column, tests = self._columns.get(attribute, (-1, 0))
        if column < 0:
            column = self._slots.take()
            self._names[column] = attribute
            self._seen = grow(self._seen, column + 1)
        self._columns[attribute] = column, tests + 1
        return column

    def _leave(self, column: int) -> None:
        """Forget an attribute that no filter uses any more."""
        attribute = self._names[column]
        _, tests = self._columns[attribute]
        if tests > 1:
            self._columns[attribute] = column, tests - 1
        else:
            del self._columns[attribute], self._names[column]
            self._slots.give(column)

    def test_pairs(
        self, t: Integers, publications: Sequence[Publication], attributes: BatchAttributes | None,
        rows: Any, which: Integers, places: Integers, found: Any,
    ) -> tuple[int, int, int]:  # fmt: skip
        """Test the filters of pairs of a publication and a row.

        Accepted pairs are written to `found`; those that only Python can decide stay in front of
        `which` and `places`. Returns the numbers of both, and of faults.
        """
        changes = np.append(True, which[1:] != which[:-1])
        publishing = which[changes].tolist()
        if attributes is None:
            several = [publications[i].attributes for i in publishing]
        else:
            several = [attributes[i] for i in publishing]
        values, starts, texts = self._values(several)
        n, m, faults = test_filters(
            t, rows, self.tests.array, self.texts.array, self._programs.array,
            values, starts, texts, self._seen, which, places, *found,
        )  # fmt: skip
        return n, m, faults

    def _values(self, several: BatchAttributes) -> tuple[Any, Integers, Any]:
        """The attributes of publications that filters use, and where those of each begin."""
        columns, values, starts, texts = self._columns, [], [0], bytearray()
        for attributes in several:
            for name, given in attributes.items():
                column = columns.get(name)
                if column is None:
                    continue
                number, text, length, kind = 0.0, 0, 0, ODD
                if isinstance(given, bool):
                    number, kind = float(given), TRUTH
                elif isinstance(given, str):
                    encoded = given.encode()
                    text, length, kind = len(texts), len(encoded), TEXT
                    texts += encoded
                elif -EXACT <= given <= EXACT or (isinstance(given, float) and not isnan(given)):
                    number, kind = float(given), NUMBER
                values.append((number, text, length, column[0], kind))
            starts.append(len(values))
        return (
            np.array(values, VALUE), np.array(starts, np.int64), np.frombuffer(texts, np.uint8)
        )  # fmt: skip


@njit(inline="always")
def compare_texts(
    one: Any, begin: int, length: int, other: Any, other_begin: int, other_length: int
) -> int:
    """Two texts in alphabetical order: -1, 0 or 1."""
    for k in range(min(length, other_length)):
        a, b = one[begin + k], other[other_begin + k]
        if a != b:
            return -1 if a < b else 1
    return 0 if length == other_length else (-1 if length < other_length else 1)


@njit(cache=True)
def test_filter(
    tests: Any,
    start: int,
    bound_texts: Any,
    values: Any,
    begin: int,
    end: int,
    texts: Any,
    seen: Any,
) -> int:
    """What `predicates.test_attributes` says, or UNDECIDED. `seen`: where the publication's values
    are."""
    clause = NO  # of tests that are tied: YES if one holds, else the greatest of their outcomes
    for k in range(start + 1, start + 1 + tests[start].column):
        test = tests[k]
        place = seen[test.column]
        outcome = NO
        if begin <= place < end and values[place].column == test.column:  # it has the attribute
            one = values[place]
            if one.kind == ODD:
                outcome = UNDECIDED
            elif one.kind != test.kind or test.bound != test.bound:
                outcome = FAULT
            else:
                if test.kind == TEXT:
                    order = compare_texts(
                        texts, one.text, one.length, bound_texts, test.text, test.length
                    )  # fmt: skip
                else:
                    order = (one.number > test.bound) - (one.number < test.bound)
                if test.operator & (2 << order if order >= 0 else 1):
                    outcome = YES
        clause = YES if outcome == YES or clause == YES else max(clause, outcome)
        if not test.operator & OR:
            if clause != YES:
                return clause
            clause = NO
    return YES


@njit(cache=True)
def test_filters(
    t: Any, rows: Any, tests: Any, bound_texts: Any, programs: Any, values: Any, starts: Any,
    texts: Any, seen: Any, which: Any, places: Any, found_publication: Any, found_id: Any,
) -> Any:  # fmt: skip
    """Test pairs; those of one publication are adjacent. See `Filters.test_pairs`."""
    stack = np.empty((STACK, 2))
    n = m = faults = 0
    turn, before = -1, -1
    begin = end = 0
    for k in range(len(which)):
        i, place = which[k], places[k]
        if i != before:
            turn, before = turn + 1, i
            begin, end = starts[turn], starts[turn + 1]
            for j in range(begin, end):
                seen[values[j].column] = j
        outcome = UNDECIDED
        if place >= 0:
            start = rows[place].filter
            if tests[start].program != t[i]:  # the moment for which its bounds are known
                since = tests[start].text
                seconds = (t[i] - since) / 1e6 if t[i] > since else 0.0
                for j in range(start + 1, start + 1 + tests[start].column):
                    if tests[j].program != NO_PROGRAM:
                        tests[j].bound = value(programs, tests[j].program, seconds, stack)
                tests[start].program = t[i]
            outcome = test_filter(tests, start, bound_texts, values, begin, end, texts, seen)
        if outcome == YES:
            found_publication[n], found_id[n] = i, rows[place].id
            n += 1
        elif outcome == FAULT:
            faults += 1
        elif outcome == UNDECIDED:
            which[m], places[m] = i, place
            m += 1
    return n, m, faults
