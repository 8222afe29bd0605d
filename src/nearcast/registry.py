"""Values by name, each in a module of its own that is imported when it is first used."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class LazyRegistry(Mapping[str, Value], Generic[Value]):
    """A mapping whose names are known at once, so that `--help` can list them without imports."""

    def __init__(self, modules: Mapping[str, str], load: Callable[[Any], Value]) -> None:
        """`modules`: where each name is defined. `load` takes the value from the module."""
        self._modules, self._load = modules, load
        self._loaded: dict[str, Value] = {}

    def __getitem__(self, name: str) -> Value:
        if name not in self._loaded:
            self._loaded[name] = self._load(import_module(self._modules[name]))
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)
