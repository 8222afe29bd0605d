"""What set-up compiles is all that there is to compile."""

from importlib import import_module
from pathlib import Path

from numba.core.dispatcher import Dispatcher

import nearcast
from nearcast.cli.compile_kernels import compile_kernels

SOURCE = Path(nearcast.__file__).parent


def kernels() -> dict[str, Dispatcher]:
    """All that numba keeps on disk, by file, name and line as its index has them."""
    found = {}
    for file in SOURCE.rglob("*.py"):
        if "njit(cache=True)" not in file.read_text(encoding="utf-8"):
            continue
        module = import_module(
            ".".join(("nearcast", *file.relative_to(SOURCE).with_suffix("").parts))
        )
        for one in vars(module).values():
            if isinstance(one, Dispatcher) and one.stats.cache_path:
                code = one.py_func.__code__
                name = f"{Path(code.co_filename).stem}.{one.py_func.__qualname__}"
                found[f"{name}-{code.co_firstlineno}"] = one
    return found


def test_every_kernel_is_on_disk_when_set_up_has_compiled_them() -> None:
    compile_kernels()
    missing = [
        name
        for name, kernel in kernels().items()
        if not any(Path(kernel.stats.cache_path).glob(f"{name}.*.nbi"))
    ]
    assert len(kernels()) > 40
    assert missing == []
