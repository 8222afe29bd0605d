"""Fuzzing instruments all modules but those that numba compiles functions of."""

import importlib
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from numba.core.dispatcher import Dispatcher

from fuzz.compiled_modules import compiled_modules


def compiled_functions(namespace: dict[str, Any]) -> Iterator[FunctionType]:
    """Those of a module, and those that they call."""
    waiting, seen = [namespace], set[int]()
    while waiting:
        for value in waiting.pop().values():
            if isinstance(value, Dispatcher) and id(value) not in seen:
                seen.add(id(value))
                waiting.append(value.py_func.__globals__)
                yield value.py_func


def test_whatever_numba_compiles_is_left_out() -> None:
    left_out = compiled_modules()
    modules = [importlib.import_module(name) for name in left_out]
    compiled = {
        function.__module__ for module in modules for function in compiled_functions(vars(module))
    }
    assert len(compiled) > 20
    assert compiled <= set(left_out)
