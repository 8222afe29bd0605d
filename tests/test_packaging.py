"""The package as users install it: a wheel, in an environment that has what a client needs."""

import ast
import asyncio
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import nearcast
import nearcast.spark
from nearcast.extras import EXTRAS
from nearcast.server.config import Settings
from nearcast.server.server import Server

ROOT = Path(__file__).parent.parent
# What a library is called in requirements, if it is imported by another name.
ALIASES = {"PIL": "pillow", "grpc_status": "grpcio_status", "jwt": "pyjwt"}
CLIENT = """
import asyncio, sys
import nearcast

async def main() -> None:
    async with nearcast.connect(sys.argv[1], name="alice") as me:
        here = await me.subscribe(nearcast.disc(0, 0, 50), echo=True)
        await me.publish(nearcast.point(3, 4), {"text": "hello"})
        message = await anext(here)
        print(message.payload, message.source == me.entity)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the files that git knows, as from a clone."""
    clone, built = (tmp_path_factory.mktemp(name) for name in ("clone", "wheel"))
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src", "clients"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    for name in ["pyproject.toml", "README.md", "LICENSE", *names]:
        file = ROOT / name
        if file.is_symlink() or file.exists():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            if file.is_symlink():
                (clone / name).symlink_to(file.readlink())
            else:
                (clone / name).write_bytes(file.read_bytes())
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "wheel", "-q", *offline, "-w", str(built), str(clone)], check=True)
    (file,) = built.glob("nearcast-*.whl")
    return file


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of its own: the wheel, and what it says that it needs without extras."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as packed:
        (about,) = (name for name in packed.namelist() if name.endswith("/METADATA"))
        needs = [
            Requirement(line.partition(": ")[2])
            for line in packed.read(about).decode().splitlines()
            if line.startswith("Requires-Dist: ")
        ]
    found: set[str] = set()
    while needs:  # with what they need themselves, copied from here: no registry is asked
        need = needs.pop()
        if need.name in found or (need.marker and not need.marker.evaluate({"extra": ""})):
            continue
        found.add(need.name)
        distribution = metadata.distribution(need.name)
        needs += map(Requirement, distribution.requires or [])
        for file in distribution.files or []:
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                (site / file).write_bytes(Path(str(distribution.locate_file(file))).read_bytes())
    interpreter = folder / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(interpreter),
         "install", "-q", "--no-deps", "--no-index", str(wheel)],
        check=True,
    )  # fmt: skip
    return interpreter


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd="/")


def test_a_wheel_has_all_files_that_the_code_reads(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    kept = ("*.py", "*.js", "*.css", "*.html", "*.svg", "*.properties", "py.typed")
    sources = {
        file.relative_to(ROOT / "src").as_posix()
        for pattern in kept
        for package in ("nearcast", "nearcast_papers")
        for file in (ROOT / "src" / package).rglob(pattern)
    }
    assert sources <= names
    assert len(zipfile.ZipFile(wheel).read("nearcast/server/http/nearcast.js")) > 10_000


def test_an_installed_client_connects_publishes_and_receives(python: Path, tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(CLIENT)

    async def story() -> subprocess.CompletedProcess[str]:
        async with Server(Settings(port=0)) as node:
            return await asyncio.to_thread(run, python, script, node.url)

    ended = asyncio.run(story())
    assert ended.stdout == "{'text': 'hello'} True\n", ended.stderr


def test_an_installed_client_has_a_command_line_and_names_the_extra_that_is_missing(
    python: Path,
) -> None:
    command = python.with_name("nearcast")
    helped = run(command, "--help")
    assert helped.returncode == 0
    assert "simulate" in helped.stdout
    for words, extra in ((["node"], "node"), (["simulate", "client-server"], "node")):
        ended = run(command, *words)
        assert ended.returncode == 1
        assert ended.stdout == ""
        assert f"pip install 'nearcast[{extra}]'" in ended.stderr
        assert ended.stderr.count("\n") == 1
    world = run(python, "-c", "import nearcast; nearcast.World")
    assert world.stderr.splitlines()[-1].startswith("ImportError: this needs ")
    joined = run(python, "-c", "import nearcast.spark")
    said = joined.stderr.splitlines()[-1]
    assert said.startswith("ImportError: nearcast.spark needs ")
    assert said.endswith("which is not installed: pip install 'nearcast[spark]'")


def test_every_extra_that_is_named_exists() -> None:
    """Each library that an extra brings is in the table, so that a user is told what to install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for library, extra in EXTRAS.items():
        if library != "llvmlite":  # numba brings it
            name = ALIASES.get(library, library)
            assert any(need.replace("-", "_").startswith(name) for need in extras[extra]), library


def test_every_library_that_the_code_imports_is_needed_or_in_an_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {Requirement(need).name for need in project["dependencies"]}
    imported = {
        name.partition(".")[0]
        for file in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        for name in imported_modules(node)
    }
    ours = {"nearcast", "nearcast_papers"}
    assert "PIL" in imported
    assert imported - sys.stdlib_module_names - ours - needed == EXTRAS.keys() - {"llvmlite"}


def imported_modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [one.name for one in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [node.module or ""]
    return []


def test_every_public_name_is_there_and_documented() -> None:
    assert sorted(nearcast.__all__) == dir(nearcast)
    for name in nearcast.__all__:
        assert getattr(nearcast, name).__doc__, name
    for name in nearcast.spark.__all__:
        assert getattr(nearcast.spark, name).__doc__, name
