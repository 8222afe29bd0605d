"""Hypothesis strategies for expressions of every kind, as trees."""

from collections.abc import Mapping
from math import pi
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from nearcast.model.expressions import (
    Arithmetic,
    Call,
    Expression,
    ExpressionParser,
    Number,
    Variable,
)
from nearcast.model.predicates import Predicates


def substitute(tree: Any, values: Mapping[str, float]) -> Any:
    """An expression with each variable's number in its place: the oracle of `bind`."""
    if isinstance(tree, Variable) and tree.name in values:
        return Number(float(values[tree.name]))
    if isinstance(tree, Call):
        return Call(tree.function, tuple(substitute(part, values) for part in tree.arguments))
    return tree


def substitute_all(predicates: Predicates, values: Mapping[str, float]) -> Predicates:
    """The same in all predicates."""
    return Predicates(
        tuple(
            replace(item, expression=substitute(item.expression, values))
            for item in predicates.items
        )
    )


NUMBERS = st.one_of(
    st.integers(-5, 5).map(float),
    st.floats(-1e3, 1e3),
    st.sampled_from([0.0, -0.0, 1e-300, 5e-324, 1e300, -1.7e308, pi, pi / 2, 1e7]),
)
LEAVES = st.one_of(st.builds(Number, NUMBERS), st.just(Variable("t")), st.just(Variable("t")))


def calls(parts: st.SearchStrategy[Arithmetic]) -> st.SearchStrategy[Arithmetic]:
    return st.one_of(
        st.builds(lambda f, a, b: Call(f, (a, b)), st.sampled_from("+-*/"), parts, parts),
        st.builds(
            lambda f, several: Call(f, tuple(several)),
            st.sampled_from(["min", "max"]),
            st.lists(parts, min_size=2, max_size=3),
        ),
        st.builds(
            lambda f, a: Call(f, (a,)),
            st.sampled_from(["abs", "sin", "cos", "sqrt", "negate"]),
            parts,
        ),
    )


TREES = st.recursive(LEAVES, calls, max_leaves=8)
SECONDS = st.one_of(st.integers(0, 12).map(float), st.floats(0, 1e3), st.floats(0, 9e9))


def parse_expression(text: str, variables: frozenset[str] = frozenset()) -> Expression:
    """The tree of one expression in which `t` and `variables` may occur; or FormulaError."""
    parser = ExpressionParser(text, variables)
    expression = parser.expression()
    parser.take_kind("end", "the end")
    return expression
