"""Style is a test: what the machine checks, reviews need not."""

import ast
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = [
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()
    if (ROOT / name).exists()
]  # fmt: skip
# Each with a letter in brackets, so that this file does not find itself.
MARKERS = re.compile("[T]ODO|[F]IXME|[X]XX|[p]ragma: no cover|[m]ark.skip|[t]ype: ignore")


def test_there_is_something_to_look_at() -> None:
    assert len(FILES) > 40


def test_no_file_is_longer_than_800_lines() -> None:
    assert [f.name for f in FILES if f.read_text().count("\n") > 800] == []


def test_no_function_is_longer_than_70_lines() -> None:
    long = []
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > 70:
                    long.append(f"{file.name}: {node.name} has {length} lines")
    assert long == []


def test_nothing_is_left_for_later() -> None:
    left = [
        f"{file.name}:{number}: {line.strip()}"
        for file in FILES
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if MARKERS.search(line)
    ]
    assert left == []


def test_every_module_is_imported_by_something() -> None:
    """A module that nothing imports is dead, unless it is where a program begins."""
    source = ROOT / "src"
    everything = "\n".join(file.read_text() for file in FILES)
    dead = []
    for file in source.rglob("*.py"):
        name = file.stem
        if name in ("__init__", "__main__"):
            continue
        parent = ".".join(file.relative_to(source).with_suffix("").parts[:-1])
        imported = re.search(
            rf"from {re.escape(parent)}(\.{name} import|.* import .*\b{name}\b)", everything
        )
        in_list = re.search(rf"from {re.escape(parent)} import \([^)]*\b{name}\b", everything)
        if not imported and not in_list:
            dead.append(name)
    assert dead == []
