"""Runs the benchmarks one after the other, and writes docs/benchmarks.md from what they measured.

Each prints its own table, which the page shows as it is, with the command, the day and the machine.
What was measured earlier stays until it is measured again. A machine that does anything else
meanwhile makes all times longer, and some ratios wrong.

Run: python benchmarks/page.py [NAME ...]      all of them: make bench
"""

import ast
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
BENCHMARKS = {
    "live": [], "latency": [], "ready": [], "matching": [], "fences": ["--large"],
    "fence_truth": [], "join": [], "streaming": [], "simulator": [], "evolving": [], "drtree": [],
    "drtree_million": [], "voronoi": [], "bubblestorm": ["--peers", "100", "300", "1000", "3000"],
    "relays": [], "cluster": [], "cluster_cores": [], "workers": [], "cold_start": [],
    "transport": [], "loss": [], "updates": [], "update_rates": [], "failover": [],
    "signing": [], "hostile": [],
}  # fmt: skip
PACKAGES = (
    "numpy", "numba", "pyarrow", "pyspark", "msgspec", "picows", "uvloop", "shapely", "rtree",
    "simpy", "polars", "duckdb", "sedonadb", "geopandas",
)  # fmt: skip
SERVERS = {
    "redis": ["redis-server", "--version"], "nats": ["nats-server", "--version"],
    "mosquitto": ["mosquitto", "-h"],
}  # fmt: skip
HEAD = """# What the benchmarks print

Written by `make bench`, which runs each script below on one machine and keeps what it prints;
`python benchmarks/page.py NAME` measures one again. Each measures Nearcast against an opponent in
the same run. Trust the ratios: absolute figures are those of the machine and the day that stand
beside them. The first lines of a script say what it does and does not measure.
"""


def main() -> int:
    """0 if all of them came to their end."""
    names = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    failed = [name for name in names if not measure(ROOT, name, BENCHMARKS[name])]
    write_page(ROOT)
    if failed:
        print(f"not measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def measure(root: Path, name: str, arguments: list[str]) -> bool:
    """Run one, show and keep what it prints. What it fails to measure leaves the earlier text."""
    results = root / "docs" / "benchmarks"
    results.mkdir(parents=True, exist_ok=True)
    command = ["python", f"benchmarks/{name}.py", *arguments]
    print(f"$ {' '.join(command)}", flush=True)
    lines = []
    with subprocess.Popen(
        [sys.executable, *command[1:]], cwd=root, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "BENCHMARK_FIGURES": str(results), "PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip() + "\n")
    if process.returncode:
        return False
    when = f"{datetime.now(UTC):%Y-%m-%d}, {machine()}"
    (results / f"{name}.txt").write_text(f"{when}\n$ {' '.join(command)}\n{''.join(lines)}")
    return True


def write_page(root: Path) -> None:
    """The page, from all that has been kept."""
    results, parts = root / "docs" / "benchmarks", [HEAD]
    for name in BENCHMARKS:
        kept = results / f"{name}.txt"
        if kept.exists():
            when, printed = kept.read_text().split("\n", 1)
            script = root / "benchmarks" / f"{name}.py"
            about = ast.get_docstring(ast.parse(script.read_text())) or ""
            figures = sorted(results.glob(f"{name}-*.svg"))
            link = f"[Script](../benchmarks/{name}.py)"
            parts.append(f"## {name}\n\n{_first_paragraph(about)}\n\n{link}; {when}.\n")
            parts += [f"![{one.stem}](benchmarks/{one.name})\n" for one in figures]
            parts.append(f"```text\n{printed.rstrip()}\n```\n")
    parts.append(f"## Versions\n\n{versions()}\n")
    (root / "docs" / "benchmarks.md").write_text("\n".join(parts))


def _first_paragraph(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


def machine() -> str:
    """Processor, cores, memory."""
    model = platform.processor() or platform.machine()
    cpus = Path("/proc/cpuinfo")
    if cpus.exists():
        models = [line for line in cpus.read_text().splitlines() if line.startswith("model name")]
        model = models[0].split(":", 1)[1].strip() if models else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}"


def versions() -> str:
    """Of the packages and servers that take part, as they are installed now."""
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            found.append(f"{package} not installed")
    for name, command in SERVERS.items():
        try:
            told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            words = told.split("\n", 1)[0].replace("v=", "").split()
            number = next((word for word in words if word.lstrip("v")[:1].isdigit()), "")
            found.append(f"{name} {number.lstrip('v') or 'of unknown version'}")
        except OSError:
            found.append(f"{name} not installed")
    return ", ".join(found) + "."


if __name__ == "__main__":
    sys.exit(main())
