"""Classes and functions as they stand in a source, for tests of style."""

import ast
from collections.abc import Iterable, Iterator
from typing import TypeAlias

Definition: TypeAlias = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def definitions(text: str) -> Iterator[Definition]:
    """All classes and functions, however deep."""
    return _definitions_in([ast.parse(text)])


def _definitions_in(body: Iterable[ast.AST]) -> Iterator[Definition]:
    """Expressions contain none, so they are not visited."""
    for node in body:
        if isinstance(node, Definition):
            yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, ())
            if isinstance(inner, list):
                yield from _definitions_in(inner)
