"""Compiles a pure function together with the functions that it calls.

numba compiles one function; another that it calls must be compiled already. `space` knows nothing
of numba, so its functions call each other as plain ones. Here a copy of the function is compiled
whose module has the compiled callees instead.
"""

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

from numba import njit


@cache
def compile_with_callees(function: Callable[..., Any]) -> Any:
    """For other kernels to call; whoever calls it from Python compiles it at the first call."""
    assert isinstance(function, FunctionType)
    namespace = dict(function.__globals__)
    for name in function.__code__.co_names:
        callee = namespace.get(name)
        if isinstance(callee, FunctionType):
            namespace[name] = compile_with_callees(callee)
    copy = FunctionType(
        function.__code__, namespace, function.__name__,
        function.__defaults__, function.__closure__,
    )  # fmt: skip
    copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
    return njit(copy)
