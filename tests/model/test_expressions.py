"""Expressions: what is read, what it is worth, and what is refused and where."""

import math
import pickle
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import FormulaError
from nearcast.model.expressions import (
    MAX_DEPTH,
    MAX_LENGTH,
    Arithmetic,
    Boolean,
    Call,
    Number,
    Text,
    Value,
    Variable,
    evaluator,
    walk,
)
from support.examples import examples
from support.expression_strategies import parse_expression, substitute

Q = frozenset({"q"})
T = Variable("t")


def value_of(text: str, t: float = 0.0, **values: float) -> Value | None:
    return evaluator(substitute(parse_expression(text, frozenset(values)), values))(t)


def refusal(text: str, variables: frozenset[str] = frozenset()) -> FormulaError:
    with pytest.raises(FormulaError) as caught:
        parse_expression(text, variables)
    return caught.value


# An oracle: trees printed by one rule and worked out by another, neither of them the parser's.

BINARY = ("+", "-", "*", "/")
LEVELS = {"+": 1, "-": 1, "*": 2, "/": 2, "negate": 3}


def is_finite(number: float | None) -> bool:
    return number is not None and math.isfinite(number)


def naive_value(tree: Arithmetic, t: float, values: Mapping[str, float]) -> float | None:
    """Every part must have a finite value; else the whole has none."""
    if isinstance(tree, Number):
        return tree.value
    if isinstance(tree, Variable):
        number = t if tree.name == "t" else values.get(tree.name)
        return number if is_finite(number) else None
    numbers: list[Any] = [naive_value(argument, t, values) for argument in tree.arguments]
    if None in numbers:
        return None
    a, b = numbers[0], numbers[-1]
    match tree.function:
        case "+":
            result = a + b
        case "-":
            result = a - b
        case "*":
            result = a * b
        case "/":
            result = a / b if b else None
        case "negate":
            result = -a
        case "min":
            result = sorted(numbers)[0]
        case "max":
            result = sorted(numbers)[-1]
        case "abs":
            result = a if a >= 0 else -a
        case "sqrt":
            result = math.sqrt(a) if a >= 0 else None
        case name:
            result = getattr(math, name)(a)
    return result if is_finite(result) else None


def has_impossible_constant(tree: Arithmetic) -> bool:
    if not isinstance(tree, Call):
        return False
    constant = not any(isinstance(node, Variable) for node in walk(tree))
    return (constant and naive_value(tree, 0.0, {}) is None) or any(
        map(has_impossible_constant, tree.arguments)
    )


def depth(tree: Arithmetic) -> int:
    return 1 + max(map(depth, tree.arguments)) if isinstance(tree, Call) else 1


def printed(tree: Arithmetic, level: int, rng: Random, redundancy: float) -> str:
    """The tree as text: parentheses where they are needed, and sometimes where they are not."""
    space = rng.choice(["", "", " ", "  ", "\t", "\n", " \r\n"])
    match tree:
        case Number(value):
            text, own = repr(value), 4
        case Variable(name):
            text, own = name, 4
        case Call("negate", (operand,)):
            text, own = f"-{space}{printed(operand, 3, rng, redundancy)}", 3
        case Call(sign, (left, right)) if sign in BINARY:
            own = LEVELS[sign]
            before = printed(left, own, rng, redundancy)
            after = printed(right, own + 1, rng, redundancy)
            text = f"{before}{space}{sign}{space}{after}"
        case Call(function, arguments):
            inside = f"{space},{space}".join(printed(a, 0, rng, redundancy) for a in arguments)
            text, own = f"{function}{space}({space}{inside}{space})", 4
    while own < level or rng.random() < redundancy:
        text, own, redundancy = f"({space}{text}{space})", 4, redundancy / 2
    return text


numbers = st.one_of(
    st.integers(0, 9).map(float),
    st.floats(0, 100, allow_subnormal=False),
    st.sampled_from([0.5, 1e308, 1e-300, 2.0**53]),
).map(lambda number: Number(abs(number)))
leaves = st.one_of(numbers, st.just(T), st.just(Variable("q")))


def extended(parts: st.SearchStrategy[Arithmetic]) -> st.SearchStrategy[Arithmetic]:
    one = st.builds(
        lambda function, a: Call(function, (a,)),
        st.sampled_from(["negate", "abs", "sin", "cos", "sqrt"]),
        parts,
    )
    two = st.builds(lambda sign, a, b: Call(sign, (a, b)), st.sampled_from(BINARY), parts, parts)
    many = st.builds(
        lambda function, arguments: Call(function, tuple(arguments)),
        st.sampled_from(["min", "max"]),
        st.lists(parts, min_size=2, max_size=4),
    )
    return st.one_of(two, two, one, many)


trees = st.recursive(leaves, extended, max_leaves=14).filter(lambda tree: depth(tree) < 12)
moments = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 1e308, math.inf, math.nan]), st.floats(-50, 50)
)


@examples(400)
@given(trees, moments, moments, st.integers(0, 2**32), st.sampled_from([0.0, 0.2, 0.5]))
def test_a_printed_tree_is_parsed_again_and_has_the_same_value(
    tree: Arithmetic, t: float, q: float, seed: int, redundancy: float
) -> None:
    text = printed(tree, 0, Random(seed), redundancy)
    if len(text) > MAX_LENGTH:
        assert refusal(text, Q).position == MAX_LENGTH
        return
    if has_impossible_constant(tree):
        assert refusal(text, Q).reason.endswith("has no value")
        return
    assert parse_expression(text, Q) == tree
    assert evaluator(substitute(tree, {"q": q}))(t) == naive_value(tree, t, {"q": q})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8 - 3 - 2", 3.0),
        ("8 / 4 / 2", 1.0),
        ("8 / 4 * 2", 4.0),
        ("1 - (2 - 3)", 2.0),
        ("2 + 3 * 4", 14.0),
        ("(2 + 3) * 4", 20.0),
        ("-2 * 3 + 1", -5.0),
        ("2 * -3", -6.0),
        ("2 - -3", 5.0),
        ("--2", 2.0),
        ("-(2 + 3)", -5.0),
        ("1.5e1 + .5 + 2.", 17.5),
        ("min(3, 1, 2) + max(3, 1, 2)", 4.0),
        ("abs(-4) + sqrt(9)", 7.0),
        ("sin(0) + cos(0)", 1.0),
        ("min(1 + 1, max(5, 6))", 2.0),
    ],
)
def test_arithmetic_has_the_usual_precedence_and_groups_from_the_left(
    text: str, value: float
) -> None:
    assert value_of(text) == value


def test_time_is_looked_up_at_each_evaluation() -> None:
    evaluate = evaluator(parse_expression("3 * t - 1"))
    assert (evaluate(2.0), evaluate(3.0)) == (5.0, 8.0)


def test_a_variable_may_have_a_name_with_dots_and_digits() -> None:
    assert value_of("q * t - speed.max_2", 2.0, **{"q": 3.0, "speed.max_2": 1.0}) == 5.0


def test_a_reserved_word_keeps_its_meaning_when_it_is_given_as_a_variable() -> None:
    given = frozenset({"t", "min", "true"})
    assert evaluator(parse_expression("t", given))(2.0) == 2.0
    assert parse_expression("true", given) == Boolean(True)
    assert refusal("min + 1", given).position == 4


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ('"apple"', Text("apple")),
        ("'apple'", Text("apple")),
        ('"it\'s"', Text("it's")),
        ("'say \"a\"'", Text('say "a"')),
        ('""', Text("")),
        ('"日本 ≤ x"', Text("日本 ≤ x")),
        ('"a \\ b"', Text("a \\ b")),
        ("true", Boolean(True)),
        (" false ", Boolean(False)),
    ],
)
def test_strings_and_booleans_are_whole_expressions(text: str, expression: Text | Boolean) -> None:
    parsed = parse_expression(text)
    assert parsed == expression
    assert evaluator(parsed)(0.0) == expression.value


def test_the_tree_is_a_plain_value() -> None:
    tree = parse_expression("-3 + t")
    assert tree == Call("+", (Call("negate", (Number(3.0),)), T))
    assert hash(tree) == hash(parse_expression("( - 3)+t"))
    assert pickle.loads(pickle.dumps(tree)) == tree


@pytest.mark.parametrize(
    ("text", "t"),
    [
        ("1 / t", 0.0),
        ("sqrt(t)", -1.0),
        ("1e308 * t", 100.0),
        ("t * 1e308", 100.0),
        ("1e308 * t - 1e308 * t", 100.0),
        ("1 / (1e308 * t)", 100.0),
        ("min(1e308 * t, 3)", 100.0),
        ("max(3, -1e308 * t)", 100.0),
        ("min(3, 1e308 * t - 1e308 * t)", 100.0),
        ("cos(1e308 * t)", 100.0),
        ("t", math.inf),
        ("t", math.nan),
        ("5 / t", -math.inf),
        ("max(t, 3)", math.nan),
    ],
)
def test_an_expression_that_cannot_be_evaluated_at_a_moment_has_no_value_then(
    text: str, t: float
) -> None:
    evaluate = evaluator(parse_expression(text))
    assert evaluate(t) is None
    assert evaluate(1.0) is not None


def test_a_variable_that_is_not_bound_cannot_be_evaluated() -> None:
    with pytest.raises(AssertionError, match="q is not bound"):
        evaluator(parse_expression("0 * q", Q))


def test_an_integer_given_for_time_is_counted_as_a_float() -> None:
    for text in ("t", "t * 2 / 2", "max(t, 2)"):
        assert type(evaluator(parse_expression(text))(3)) is float


def test_a_hand_made_tree_without_a_value_has_none_rather_than_an_exception() -> None:
    assert evaluator(Call("/", (Number(1.0), Number(0.0))))(0.0) is None
    assert evaluator(Call("sqrt", (Number(-1.0),)))(0.0) is None


# Refusals.


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "expected a value, found the end"),
        ("   ", 3, "expected a value, found the end"),
        ("3 + q", 4, "unknown name 'q'"),
        ("3 + T", 4, "unknown name 'T'"),
        ("t.x", 0, "unknown name 't.x'"),
        ("negate(3)", 0, "unknown name 'negate'"),
        ("exec(3)", 0, "unknown name 'exec'"),
        ("1 + ", 4, "expected a value, found the end"),
        ("1 * / 2", 4, "expected a value, found '/'"),
        ("+3", 0, "expected a value, found '+'"),
        ("(1 + 2", 6, "expected ')', found the end"),
        ("1 + 2)", 5, "expected the end, found ')'"),
        ("3 t", 2, "expected the end, found 't'"),
        ("3t", 1, "expected the end, found 't'"),
        ("0x10", 1, "expected the end, found 'x10'"),
        ("1.2.3", 3, "expected the end, found '.3'"),
        ("t < 3", 2, "expected the end, found '<'"),
        ("2 ** 3", 3, "expected a value, found '*'"),
        ("1 // 2", 3, "expected a value, found '/'"),
        ("1_000", 1, "unexpected character '_'"),
        ("t; 1", 1, "unexpected character ';'"),
        ("3 % 2", 2, "unexpected character '%'"),
        ("3 + ٣", 4, "unexpected character '٣' (U+0663)"),
        ("3 + т", 4, "unexpected character 'т' (U+0442)"),
        ("3 − 1", 2, "unexpected character '−' (U+2212)"),
        ("3\u00a0+ 1", 1, "unexpected character '\\xa0' (U+00A0)"),
        ("3 + \0", 4, "unexpected character '\\x00'"),
        ("1e999", 0, "number too large"),
        ("t + 1" + "0" * 400, 4, "number too large"),
        ("t + 9007199254740993", 4, "whole number too large to be exact"),
        ("min(3)", 0, "min takes two or more arguments, not 1"),
        ("1 + sqrt(1, 2)", 4, "sqrt takes one argument, not 2"),
        ("sin()", 4, "expected a value, found ')'"),
        ("sin 3", 4, "expected '(', found '3'"),
        ("max(1, 2", 8, "expected ')', found the end"),
        ("max(1, , 2)", 7, "expected a value, found ','"),
        ('"a', 0, "string without an end"),
        ("1 + 'a\"", 4, "string without an end"),
        ('"a\0b"', 2, "control character in a string"),
        ('"a\nb"', 2, "control character in a string"),
        ('"a\ud800"', 2, "control character in a string"),
        ('"a" + 1', 0, "no arithmetic with '\"a\"'"),
        ('1 + "a"', 4, "no arithmetic with '\"a\"'"),
        ('-"a"', 1, "no arithmetic with '\"a\"'"),
        ('("a")', 1, "no arithmetic with '\"a\"'"),
        ("true * 2", 0, "no arithmetic with 'true'"),
        ("2 * false", 4, "no arithmetic with 'false'"),
        ('max(1, "a")', 7, "no arithmetic with '\"a\"'"),
        ('"a" "b"', 4, "expected the end, found '\"b\"'"),
        ("1/0", 0, "'1/0' has no value"),
        ("t + 1 / 0", 4, "'1 / 0' has no value"),
        ("t + 3 * (2 / (1 - 1))", 9, "'2 / (1 - 1)' has no value"),
        ("t + (2 - 2) / 0", 4, "'(2 - 2) / 0' has no value"),
        ("t * sqrt(-1)", 4, "'sqrt(-1)' has no value"),
        ("t * sqrt( 1 - 2 ) + 1", 4, "'sqrt( 1 - 2 )' has no value"),
        ("t - 1e308 * 10", 4, "'1e308 * 10' has no value"),
        ("t - min(1, 1e308 * 10)", 11, "'1e308 * 10' has no value"),
    ],
)
def test_every_refusal_says_why_and_where(text: str, position: int, reason: str) -> None:
    error = refusal(text)
    assert (error.text, error.position, error.reason) == (text, position, reason)


def test_whole_numbers_that_a_float_holds_exactly_are_read_however_long() -> None:
    assert parse_expression(str(2**60)) == Number(2.0**60)
    assert parse_expression("9007199254740993.0") == Number(2.0**53)


def test_a_refusal_reads_as_one_line() -> None:
    assert str(refusal("3 + q")) == "unknown name 'q' at character 4 of \"3 + q\""
    assert str(refusal("3 +\n q")) == "unknown name 'q' at character 5 of \"3 +\\n q\""


def test_a_refusal_of_a_long_text_shows_the_neighbourhood_of_the_place() -> None:
    text = "t + " * 20 + "q" * 200 + " + t" * 20
    error = refusal(text)
    assert error.position == 80
    shown = "…" + text[50:110] + "…"
    assert str(error) == f"unknown name '{'q' * 30}…' at character 80 of \"{shown}\""


def test_a_refusal_is_a_value_error_that_survives_a_process_border() -> None:
    error = refusal("3 + q")
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, FormulaError) and isinstance(copy, ValueError)
    assert (str(copy), copy.position) == (str(error), 4)


# Limits.


def test_nesting_is_read_up_to_the_limit_and_refused_beyond() -> None:
    assert parse_expression("(" * MAX_DEPTH + "t" + ")" * MAX_DEPTH) == T
    assert refusal("(" * 33 + "t" + ")" * 33).position == 33
    assert value_of("-" * 31 + "t", 2.0) == -2.0
    assert refusal("-" * 32 + "t").position == 0
    assert value_of("abs(" * 31 + "t" + ")" * 31, -2.0) == 2.0


def test_a_long_sum_is_a_deep_tree_and_limited_alike() -> None:
    assert value_of("+".join(["t"] * MAX_DEPTH), 1.0) == 32.0
    assert refusal("1 - (" + "+".join(["t"] * (MAX_DEPTH + 1)) + ")").position == 5
    assert refusal("*".join(["t"] * (MAX_DEPTH + 1))).reason.startswith("more than 31 operations")


def test_a_text_is_read_up_to_the_longest_length_and_refused_beyond() -> None:
    assert parse_expression("t".ljust(MAX_LENGTH)) == T
    assert refusal("t".ljust(MAX_LENGTH + 1)).position == MAX_LENGTH


@pytest.mark.parametrize(
    "bomb",
    [
        "(" * 1_000,
        "(" * 100_000,
        "-" * 1_000,
        "-" * 999 + "t",
        "sin(" * 250,
        "max(1," * 160,
        "t" * 1_000_000,
        "9" * 1_000,
        "1e" + "9" * 998,
        "1" + "*9" * 499,
        "\0" * 1_000,
        "\n" * 999 + "q",
        "٣" * 500,
        "ｔ + １",
        "\u2028" * 900,
        "'" * 999,
        "__import__('os').system('true')",
        "().__class__",
        "t.__class__",
        "lambda: 1",
        "[t]",
    ],
)
def test_a_bomb_is_refused_with_one_short_line(bomb: str) -> None:
    message = str(refusal(bomb))
    assert message.splitlines() == [message]
    assert message.isprintable()
    assert len(message) < 700


words = ["min", "sqrt", "sin", "true", "==", "!=", "1e308", ".5", "1e999", '"a"']
fragments = st.sampled_from([*"tqx10(),+-*/<{}é² \n\0'\"", *words])
soups = st.one_of(st.text(max_size=60), st.lists(fragments, max_size=25).map("".join))


@examples(500)
@given(soups, moments)
def test_any_text_is_either_read_or_refused(text: str, t: float) -> None:
    try:
        expression = parse_expression(text, Q)
    except FormulaError as error:
        assert 0 <= error.position <= len(text)
        assert str(error).splitlines() == [str(error)]
    else:
        evaluator(substitute(expression, {"q": t}))(t)
