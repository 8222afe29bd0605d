"""Programs of formulas: number by number what `predicates` and `intervals` say."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nearcast.matching import formula_vm
from nearcast.matching.formula_vm import CODES, STACK, Programs, compile_region
from nearcast.model import intervals
from nearcast.model.expressions import FUNCTIONS
from nearcast.model.predicates import Predicate, Predicates, box_at, has_values, parse
from support.examples import examples
from support.expression_strategies import SECONDS, TREES
from support.strategies import shapes

PREDICATES = st.lists(
    st.builds(
        Predicate, st.sampled_from("xyz"), st.sampled_from(["<", "<=", ">", ">=", "=="]), TREES
    ),
    min_size=1,
    max_size=4,
).map(lambda items: Predicates(tuple(items)))


def scratch() -> tuple[np.ndarray, np.ndarray]:
    return np.empty((STACK, 2)), np.empty((4, 3))


@examples(300)
@given(predicates=PREDICATES, t=SECONDS, shape=shapes())
def test_at_any_moment_the_region_is_what_python_finds(
    predicates: Predicates, t: float, shape: object
) -> None:
    programs = Programs()
    programs.add(parse("x > 1"))  # so that it does not begin at the beginning
    start = programs.add(predicates)
    stack, ends = scratch()
    outcome = formula_vm.locate_region(programs.array, start, t, stack, ends)
    region = box_at(predicates, t)
    if outcome == formula_vm.VALUELESS:
        assert region is None
        assert not has_values(predicates, t)
        return
    assert (region is None) == (outcome == formula_vm.EMPTY)
    if region is not None:
        for axis, interval in enumerate((region.x, region.y, region.z)):
            found = (*ends[:2, axis].tolist(), *(ends[2:, axis] != 0).tolist())
            assert found == (
                interval.low, interval.high, interval.strict_low, interval.strict_high,
            )  # fmt: skip
        s = (shape.kind, shape.x, shape.y, shape.z, shape.rx, shape.ry, shape.rz)
        assert formula_vm.touching(*ends, *s) == region.touches(*s)


@examples(300)
@given(predicates=PREDICATES, moments=st.tuples(SECONDS, SECONDS))
def test_over_any_slice_the_box_is_what_interval_arithmetic_finds(
    predicates: Predicates, moments: tuple[float, float]
) -> None:
    low, high = sorted(moments)
    programs = Programs()
    start = programs.add(predicates)
    stack, ends = scratch()
    formula_vm.bound_region(programs.array, start, low, high, stack, ends)
    box = intervals.swept_box(predicates, low, high)
    if box is None:
        assert np.all(ends[0] > ends[1])
    else:
        assert list(zip(ends[0].tolist(), ends[1].tolist(), strict=True)) == [*map(tuple, box)]


def test_every_function_has_a_code() -> None:
    assert set(CODES) == set(FUNCTIONS)
    assert len(set(CODES.values())) == len(CODES)


def test_the_deepest_formula_fits_the_stack() -> None:
    depth = 31
    text = "t" + "".join(f" + {i}" for i in range(depth - 1))
    right = "".join(f"({i} + " for i in range(depth - 1)) + "t" + ")" * (depth - 1)
    for expression in (text, right):
        programs = Programs()
        predicates = parse(f"x <= {expression}")
        stack, ends = scratch()
        outcome = formula_vm.locate_region(
            programs.array, programs.add(predicates), 2.0, stack, ends
        )
        assert outcome == formula_vm.SOMEWHERE
        assert ends[1, 0] == box_at(predicates, 2.0).x.high


def test_programs_reuse_the_slots_of_removed_ones() -> None:
    programs = Programs()
    first = programs.add(parse("x > 1 + t"))
    second = programs.add(parse("x > 1 + t, y < 2"))
    programs.remove(first)
    assert programs.add(parse("x < 7 - t")) == first
    assert programs.add(parse("x < 7 - t")) > second
    starts = [programs.add(parse("x > 1 + t, y < 2")) for _ in range(200)]
    length = len(compile_region(parse("x > 1 + t, y < 2")))
    assert all(b - a >= length for a, b in pairwise(starts))
    assert len(programs.array) >= starts[-1] + length
