"""Style is a test: what the machine checks, reviews need not."""

import ast
import re
import subprocess
from pathlib import Path

from support.schedule import LONG_FILES
from support.source_code import definitions

ROOT = Path(__file__).parent.parent
FILES = [
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()
    if (ROOT / name).exists()
]  # fmt: skip
TEXTS = {file: file.read_text() for file in FILES}
# Each with a letter in brackets, so that this file does not find itself.
MARKERS = re.compile("[T]ODO|[F]IXME|[X]XX|[p]ragma: no cover|[m]ark.skip|[t]ype: ignore")


def test_there_are_files_to_check() -> None:
    assert len(FILES) > 40


def test_no_file_is_longer_than_800_lines() -> None:
    assert [file.name for file, text in TEXTS.items() if text.count("\n") > 800] == []


def test_no_function_is_longer_than_70_lines() -> None:
    long = []
    for file, text in TEXTS.items():
        for node in definitions(text):
            length = (node.end_lineno or 0) - node.lineno + 1
            if length > 70 and not isinstance(node, ast.ClassDef):
                long.append(f"{file.name}: {node.name} has {length} lines")
    assert long == []


def test_no_file_has_a_todo() -> None:
    left = [
        f"{file.name}:{number}: {line.strip()}"
        for file, text in TEXTS.items()
        for number, line in enumerate(text.splitlines(), 1)
        if MARKERS.search(line)
    ]
    assert left == []


def test_every_module_is_imported_by_something() -> None:
    """A module that nothing imports is dead, unless it is where a program begins."""
    source = ROOT / "src"
    imported = set()
    for text in TEXTS.values():
        for parent, names in re.findall(r"from ([\w.]+) import (\([^)]*\)|.*)", text):
            imported.add(parent)
            imported.update(f"{parent}.{name}" for name in re.findall(r"\w+", names))
        imported.update(re.findall(r'"(nearcast\.[\w.]+)"', text))  # begun by its name
    dead = []
    for file in source.rglob("*.py"):
        module = ".".join(file.relative_to(source).with_suffix("").parts)
        if file.stem not in ("__init__", "__main__") and module not in imported:
            dead.append(module)
    assert dead == []


def test_the_schedule_names_files_that_there_are() -> None:
    assert [file for file in LONG_FILES if not (ROOT / file).exists()] == []
