"""Functions of time as text: `-3 + t`, `max(0, 10 - 2 * t)`, `"apple"`, `true`.

[Evolving] section 2 puts a function of `t` in the place of a predicate's value. Such text comes
from clients, so Python never evaluates it: our own parser turns it into a small tree, with limits
on length and depth that keep every later walk over the tree short. `evaluator` turns a tree into
nested closures once; the tree stays a plain value for whoever wants to reason about it.

    expression = string | "true" | "false" | sum
    sum        = product { ("+" | "-") product }
    product    = unary { ("*" | "/") unary }
    unary      = "-" unary | number | name | name "(" sum { "," sum } ")" | "(" sum ")"

An expression has a value only where each of its parts has a finite one; elsewhere it has none,
which is `None` and never an exception.
"""

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import cos, inf, isfinite, sin, sqrt
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from nearcast.errors import SHOWN, FormulaError, printable

MAX_LENGTH = 1_000  # characters of a text
MAX_DEPTH = 32  # of nesting in a text, and of its tree: `a + b + c` is a tree of depth 3
TIME = "t"  # seconds since submission


def _quoted(text: str) -> str:
    return f"'{printable(text[:SHOWN])}{'…' if len(text) > SHOWN else ''}'"


# The tree.


class Number(Struct, frozen=True):
    """A constant."""

    value: float


class Variable(Struct, frozen=True):
    """`t`, or a name whose value the caller gives."""

    name: str


class Call(Struct, frozen=True):
    """A function of FUNCTIONS and its arguments; `a + b` is the function "+" of a and b."""

    function: str
    arguments: "tuple[Arithmetic, ...]"


class Text(Struct, frozen=True):
    """A string constant."""

    value: str


class Boolean(Struct, frozen=True):
    """`true` or `false`."""

    value: bool


Arithmetic: TypeAlias = Number | Variable | Call
Expression: TypeAlias = Arithmetic | Text | Boolean
Value: TypeAlias = float | str | bool


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and all its parts, from the left."""
    yield expression
    if isinstance(expression, Call):
        for argument in expression.arguments:
            yield from walk(argument)


# Evaluation.
#
# Infinity and NaN pass visibly through every function but three: a division by infinity, min and
# max could hide them in a finite result. So these three look at their arguments, and one look at
# the final result covers all the rest.


def _divide(dividend: float, divisor: float) -> float:
    if not -inf < divisor < inf:
        raise OverflowError
    return dividend / divisor


def _least(*numbers: float) -> float:
    if not all(map(isfinite, numbers)):
        raise OverflowError
    return min(numbers)


def _greatest(*numbers: float) -> float:
    if not all(map(isfinite, numbers)):
        raise OverflowError
    return max(numbers)


_OPERATORS: dict[str, Callable[..., float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "negate": operator.neg,
}
_NAMED: dict[str, Callable[..., float]] = {
    "min": _least,
    "max": _greatest,
    "abs": abs,
    "sin": sin,
    "cos": cos,
    "sqrt": sqrt,
}
FUNCTIONS: Mapping[str, Callable[..., float]] = _OPERATORS | _NAMED
RESERVED = frozenset({TIME, "true", "false", "or", *_NAMED})  # not allowed as variables

# Division by zero or overflow, sqrt(-1) or sin(inf).
_NO_VALUE = (ArithmeticError, ValueError)

Evaluator: TypeAlias = Callable[[float], Value | None]


def evaluator(expression: Expression) -> Evaluator:
    """The function from `t` to the expression's value, or None; all variables are bound."""
    if isinstance(expression, Text | Boolean):
        constant = expression.value
        return lambda _t: constant
    closure = _compile(_fold_constants(expression))

    def evaluate(t: float) -> float | None:
        try:
            result = closure(t)
        except _NO_VALUE:
            return None
        return result if -inf < result < inf else None

    return evaluate


def _calculate(function: str, numbers: Sequence[float]) -> float | None:
    try:
        result = FUNCTIONS[function](*numbers)
    except _NO_VALUE:
        return None
    return result if -inf < result < inf else None


def _fold_constants(tree: Arithmetic) -> Arithmetic:
    """The same tree with its constant parts worked out."""
    if not isinstance(tree, Call):
        return tree
    arguments = tuple(map(_fold_constants, tree.arguments))
    numbers = [argument.value for argument in arguments if isinstance(argument, Number)]
    if len(numbers) == len(arguments):
        constant = _calculate(tree.function, numbers)
        if constant is not None:
            return Number(constant)
    return Call(tree.function, arguments)


def _compile(tree: Arithmetic) -> Callable[[float], float]:
    if isinstance(tree, Number):
        number = tree.value
        return lambda _t: number
    if isinstance(tree, Variable):
        assert tree.name == TIME, f"{tree.name} is not bound"
        return lambda t: 0.0 + t  # an integer becomes a float
    function = FUNCTIONS[tree.function]
    first, *rest = map(_compile, tree.arguments)
    if not rest:
        return lambda t: function(first(t))
    if len(rest) > 1:
        return lambda t: function(*[part(t) for part in (first, *rest)])
    second = rest[0]
    # Most bounds are a number plus a multiple of t, `-3 + t` or `1 + 2 * t`: these save calls.
    left, right = tree.arguments
    if isinstance(left, Number):
        number = left.value
        if right == Variable(TIME):
            return lambda t: function(number, t)
        return lambda t: function(number, second(t))
    if isinstance(right, Number):
        number = right.value
        return lambda t: function(first(t), number)
    return lambda t: function(first(t), second(t))


# Parsing.

# The classes are spelled out, so that no look-alike letter or foreign digit counts as one of ours.
_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
        (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | (?P<name>[A-Za-z][A-Za-z0-9_.]*)
      | (?P<string>"[^"]*"|'[^']*')
      | (?P<comparison><=|>=|==|!=|<|>)
      | (?P<sign>[-+*/(),{}])
      | (?P<end>\Z)
      | (?P<other>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
# A string may hold any letter of the world, but nothing that cannot be shown or sent.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Token(NamedTuple):
    """One token and where it begins."""

    kind: str
    text: str
    position: int


class _Subtree(NamedTuple):
    """A parsed part of the tree; `constant` is its value if it has no variable."""

    tree: Arithmetic
    start: int
    depth: int
    constant: float | None


class ExpressionParser:
    """A cursor over a text: `token` is the next token, not yet taken."""

    def __init__(self, text: str, variables: frozenset[str]) -> None:
        self.text = text
        self.variables = variables - RESERVED | {TIME}
        if len(text) > MAX_LENGTH:
            raise self.error(f"more than {MAX_LENGTH} characters", MAX_LENGTH)
        self.taken = 0  # where the last taken token ended
        self.token = self._scan()

    def error(self, reason: str, position: int) -> FormulaError:
        return FormulaError(self.text, position, reason)

    def expected(self, what: str) -> FormulaError:
        found = "the end" if self.token.kind == "end" else _quoted(self.token.text)
        return self.error(f"expected {what}, found {found}", self.token.position)

    def take(self) -> Token:
        token = self.token
        self.taken = token.position + len(token.text)
        self.token = self._scan()
        return token

    def take_kind(self, kind: str, what: str) -> Token:
        if self.token.kind != kind:
            raise self.expected(what)
        return self.take()

    def accept(self, sign: str) -> bool:
        """Take the next token if it is this sign."""
        if self.token.text != sign:
            return False
        self.take()
        return True

    def expect(self, sign: str) -> None:
        if not self.accept(sign):
            raise self.expected(_quoted(sign))

    def expression(self) -> Expression:
        """Parse one expression."""
        token = self.token
        if token.kind != "string" and token.text not in ("true", "false"):
            return self._sum(0).tree
        if token.kind == "string" and (forbidden := _FORBIDDEN.search(token.text)):
            place = token.position + forbidden.start()
            raise self.error("control character in a string", place)
        self.take()
        if self.token.text in ("+", "-", "*", "/"):
            raise self._not_a_number(token)
        return Text(token.text[1:-1]) if token.kind == "string" else Boolean(token.text == "true")

    def _not_a_number(self, token: Token) -> FormulaError:
        return self.error(f"no arithmetic with {_quoted(token.text)}", token.position)

    def _scan(self) -> Token:
        match = _TOKEN.match(self.text, self.taken)
        assert match is not None and match.lastgroup is not None  # "other" takes what is left
        kind = match.lastgroup
        token = Token(kind, match[kind], match.start(kind))
        if kind == "other" and token.text in "\"'":
            raise self.error("string without an end", token.position)
        if kind == "other":
            code = "" if token.text.isascii() else f" (U+{ord(token.text):04X})"
            raise self.error(f"unexpected character {_quoted(token.text)}{code}", token.position)
        return token

    def _sum(self, nesting: int) -> _Subtree:
        part = self._product(nesting)
        while self.token.text in ("+", "-"):
            function = self.take().text
            part = self._call(function, part.start, [part, self._product(nesting)])
        return part

    def _product(self, nesting: int) -> _Subtree:
        part = self._unary(nesting)
        while self.token.text in ("*", "/"):
            function = self.take().text
            part = self._call(function, part.start, [part, self._unary(nesting)])
        return part

    def _unary(self, nesting: int) -> _Subtree:
        token = self.token
        if nesting > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH}", token.position)
        if token.kind == "number":
            return self._number()
        if token.kind == "name":
            return self._named(nesting)
        if token.kind == "string":
            raise self._not_a_number(token)
        if self.accept("-"):
            return self._call("negate", token.position, [self._unary(nesting + 1)])
        if self.accept("("):
            part = self._sum(nesting + 1)
            self.expect(")")
            return part._replace(start=token.position)
        raise self.expected("a value")

    def _number(self) -> _Subtree:
        token = self.token
        value = float(token.text)
        if value == inf:
            raise self.error("number too large", token.position)
        # Refused rather than rounded: `id == 9007199254740993` must not mean its neighbour.
        if token.text.isdecimal() and int(token.text) != value:
            raise self.error("whole number too large to be exact", token.position)
        self.take()
        return _Subtree(Number(value), token.position, 1, value)

    def _named(self, nesting: int) -> _Subtree:
        token = self.token
        if token.text in ("true", "false"):
            raise self._not_a_number(token)
        if token.text in self.variables:
            self.take()
            return _Subtree(Variable(token.text), token.position, 1, None)
        if token.text not in _NAMED:
            raise self.error(f"unknown name {_quoted(token.text)}", token.position)
        self.take()
        self.expect("(")
        arguments = [self._sum(nesting + 1)]
        while self.accept(","):
            arguments.append(self._sum(nesting + 1))
        self.expect(")")
        several = token.text in ("min", "max")
        if several != (len(arguments) > 1):
            takes = "two or more arguments" if several else "one argument"
            raise self.error(f"{token.text} takes {takes}, not {len(arguments)}", token.position)
        return self._call(token.text, token.position, arguments)

    def _call(self, function: str, start: int, parts: list[_Subtree]) -> _Subtree:
        depth = 1 + max(part.depth for part in parts)
        if depth > MAX_DEPTH:
            raise self.error(f"more than {MAX_DEPTH - 1} operations inside one another", start)
        numbers = [part.constant for part in parts if part.constant is not None]
        constant = None
        if len(numbers) == len(parts):
            constant = _calculate(function, numbers)
            if constant is None:
                raise self.error(f"{_quoted(self.text[start : self.taken])} has no value", start)
        return _Subtree(Call(function, tuple(part.tree for part in parts)), start, depth, constant)
