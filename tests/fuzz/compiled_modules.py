"""Modules whose functions numba compiles, which it could not if they were instrumented."""

import re
from importlib.util import find_spec
from pathlib import Path

COMPILES = re.compile("njit|compile_with_callees")
# They know nothing of numba; others compile their functions.
PURE = ("model.predicates", "space.earth", "space.motion", "space.outline_touch", "space.shapes")


def compiled_modules() -> list[str]:
    """Those that compile something, and those above. Nothing is imported for it."""
    spec = find_spec("nearcast")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).parent
    naming = [
        ".".join(("nearcast", *file.relative_to(source).with_suffix("").parts))
        for file in sorted(source.rglob("*.py"))
        if COMPILES.search(file.read_text("utf-8"))
    ]
    return [*naming, *(f"nearcast.{name}" for name in PURE)]
