"""The page of numbers is made of what benchmarks print; one that fails changes nothing."""

import ast
import sys
from importlib import import_module
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
WORKS = '''"""What one costs.

More about it.
"""
from figures import draw_bars
draw_bars("works-cost", "Cost", {"Nearcast": 1.0, "other": 3.0})
print("ours 1, theirs 3")
'''


@pytest.fixture(autouse=True)
def _benchmarks_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_what_benchmarks_print_and_draw_is_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import page

    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (folder / "figures.py").write_text((BENCHMARKS / "figures.py").read_text())
    (folder / "works.py").write_text(WORKS)
    (folder / "fails.py").write_text('"""Fails."""\nprint("so far")\nraise SystemExit(1)\n')
    monkeypatch.setattr(page, "ROOT", tmp_path)
    monkeypatch.setattr(page, "BENCHMARKS", {"works": [], "fails": []})
    monkeypatch.setattr(sys, "argv", ["page.py"])
    assert page.main() == 1
    told = (tmp_path / "docs" / "benchmarks.md").read_text()
    assert "## works\n\nWhat one costs.\n" in told
    assert "$ python benchmarks/works.py\nours 1, theirs 3\n```" in told
    assert "![works-cost](benchmarks/works-cost.svg)" in told
    assert (tmp_path / "docs" / "benchmarks" / "works-cost.svg").read_text().startswith("<svg")
    assert "fails" not in told
    assert "not measured: fails" in capsys.readouterr().err


def test_a_benchmark_that_does_not_exist_is_an_error_that_names_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import page

    monkeypatch.setattr(sys, "argv", ["page.py", "mathing"])
    assert page.main() == 2
    assert "no benchmark 'mathing'; there are live, latency," in capsys.readouterr().err


def test_every_benchmark_is_one_that_exists() -> None:
    import page

    assert all((BENCHMARKS / f"{name}.py").exists() for name in page.BENCHMARKS)


@pytest.mark.parametrize("script", [path.name for path in sorted(BENCHMARKS.glob("*.py"))])
def test_what_a_benchmark_imports_is_there(script: str) -> None:
    """`make test` runs none of them, and what they import may have got another place."""
    for node in ast.walk(ast.parse((BENCHMARKS / script).read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            ("nearcast", "support")
        ):
            module = import_module(node.module or "")
            for name in node.names:
                if not hasattr(module, name.name):
                    import_module(f"{node.module}.{name.name}")
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name.startswith("nearcast"):
                    import_module(name.name)
