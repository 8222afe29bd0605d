"""Analysing as a person would, on any Spark, and what comes out of it bit by bit."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyspark

from nearcast.pipeline.spark.session import java_home
from nearcast.storage import AnyPath, list_folder, open_parquet
from support.ports import free_port

ROOT = Path(__file__).parent.parent.parent
SPARK = Path(pyspark.__file__).parent
PATIENCE_S = 600  # a machine at its limit takes long to start a cluster
NEARCAST = (sys.executable, "-m", "nearcast.cli")
# As if every trace were large: then workers write the results.
AS_IF_LARGE = (
    sys.executable, "-c",
    "import sys\n"
    "import nearcast.pipeline.analyse\n"
    "from nearcast.cli.main import main\n"
    "nearcast.pipeline.analyse.LEAN_ROWS = 0\n"
    "sys.exit(main(sys.argv[1:]))",
)  # fmt: skip


def begin(
    command: Sequence[object], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )


def analysing(trace: AnyPath, out: AnyPath, master: str) -> subprocess.Popen[str]:
    return begin([*NEARCAST, "analyse", trace, "--json", "--out", out, "--master", master])


def finished(process: subprocess.Popen[str]) -> str:
    """What it printed, if it ended well."""
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    return out


def contents(out: AnyPath) -> dict[str, bytes]:
    """The rows of all result tables, bit by bit, by table and run.

    Not the files' own bytes: a Parquet footer lists a column's encodings in the order of a Java
    set, which is another in each JVM. Nor what the footer says of the program that wrote it.
    """
    found: dict[str, bytes] = {}
    for place, names in parquet_files(out, ""):
        parts = []
        for name in names:
            with open_parquet(out / place / name) as file:
                parts.append(file.read())
        rows = pa.concat_tables(parts).replace_schema_metadata()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows.combine_chunks())
        found[place] = sink.getvalue().to_pybytes()
    return found


def parquet_files(folder: AnyPath, place: str) -> Iterator[tuple[str, list[str]]]:
    """Each folder below this one that has Parquet files, and their names."""
    listed = list_folder(folder)
    if names := [name for name in listed if name.endswith(".parquet")]:
        yield place, names
    for name, is_folder in listed.items():
        if is_folder:
            yield from parquet_files(folder / name, f"{place}/{name}".lstrip("/"))


# Processes.


def descendants(of: int) -> dict[int, list[str]]:
    """The command lines of a process's descendants, by process; Linux lists children by parent."""
    parents: dict[int, int] = {}
    lines: dict[int, list[str]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                stat, line = (folder / "stat").read_text(), (folder / "cmdline").read_text()
            except OSError:
                continue  # it has ended meanwhile
            parents[int(folder.name)] = int(stat.rsplit(")", 1)[1].split()[1])
            lines[int(folder.name)] = line.split("\0")

    def descends(one: int) -> bool:
        while one in parents:
            if one == of:
                return True
            one = parents[one]
        return False

    return {one: line for one, line in lines.items() if one != of and descends(one)}


def executors(of: int) -> list[int]:
    """The executors among a process's descendants."""
    # The shell script that starts a JVM has the same words on its line, but does not begin so.
    return [
        one
        for one, line in descendants(of).items()
        if line[0].endswith("java") and any("CoarseGrainedExecutorBackend" in w for w in line)
    ]


def python_workers(of: int) -> list[int]:
    """The processes that run Python functions: children of a daemon, with the same line."""
    found = descendants(of)
    return [one for one, line in found.items() if "pyspark.daemon" in line and not _has_child(one)]


def _has_child(process: int) -> bool:
    children = Path(f"/proc/{process}/task/{process}/children")
    return children.exists() and bool(children.read_text().strip())


def kill_one(
    found: Callable[[], Sequence[int]],
    process: subprocess.Popen[str],
    out: AnyPath,
) -> int:
    """Without a word, as soon as the first table is there; returns which one it was."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        if first_table(out) and (some := found()):
            os.kill(some[0], signal.SIGKILL)
            return some[0]
        time.sleep(0.05)
    raise AssertionError(f"there was nothing to kill; {process.poll()=}")


def kill_an_executor(process: subprocess.Popen[str], out: AnyPath) -> int:
    return kill_one(lambda: executors(process.pid), process, out)


def first_table(out: AnyPath) -> bool:
    tables = (name for name, is_folder in list_folder(out).items() if is_folder)
    return any(name.startswith("run=") for table in tables for name in list_folder(out / table))


# Clusters of several processes, started from the pyspark package.


def wait_until_answers(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, f"nobody answers: {log.read_text()}"
            time.sleep(0.2)


# In a mount namespace of its own: of $ROOT only the interpreter with its packages is left, as the
# machines of a cluster would have them, and $HIDDEN is empty. Of $BARE, if it is named, only
# pyspark is left.
ALONE = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$HIDDEN"
mkdir "$HIDDEN/interpreter"
mount --bind "$ROOT/.venv" "$HIDDEN/interpreter"
mount -t tmpfs tmpfs "$ROOT"
mkdir "$ROOT/.venv"
mount --move "$HIDDEN/interpreter" "$ROOT/.venv"
if [ -n "$BARE" ]; then
  mkdir "$HIDDEN/pyspark"
  mount --bind "$BARE/pyspark" "$HIDDEN/pyspark"
  mount -t tmpfs tmpfs "$BARE"
  mkdir "$BARE/pyspark"
  mount --move "$HIDDEN/pyspark" "$BARE/pyspark"
fi
mkdir -p "$HOME" "$TMPDIR" "$SPARK_WORKER_DIR"
cd "$HOME"
exec "$@"
"""


def unshare() -> list[str]:
    """The command that gives a process mounts of its own."""
    return ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"])]


def can_unshare() -> bool:
    try:
        return subprocess.run([*unshare(), "mount", "-t", "tmpfs", "none", "/tmp"]).returncode == 0
    except OSError:
        return False


class Machine(NamedTuple):
    """A process of a cluster that shares no folder with us."""

    process: subprocess.Popen[bytes]
    log: Path

    def sees(self, path: Path) -> bool:
        return any(
            Path(f"/proc/{one}/root{path}").exists()
            for one in (self.process.pid, *descendants(self.process.pid))
        )


@contextmanager
def machine(hidden: Path, name: str, *command: object, **more: str) -> Iterator[Machine]:
    """Run a command where neither our sources nor `hidden` can be seen."""
    home = hidden / name
    own = {
        "ROOT": str(ROOT), "HIDDEN": str(hidden), "HOME": str(home), "TMPDIR": str(home / "tmp"),
        "SPARK_WORKER_DIR": str(home / "work"), "SPARK_LOCAL_DIRS": str(home / "tmp"),
        "JAVA_HOME": java_home(), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
        "BARE": "",
    }  # fmt: skip
    log = hidden / f"{name}.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*unshare(), "bash", "-c", ALONE, "alone", *map(str, command)],
            stdout=output, stderr=output, env={**os.environ, **own, **more}, start_new_session=True,
        )  # fmt: skip
    try:
        yield Machine(process, log)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(60)
        finally:
            for one in (process.pid, *descendants(process.pid)):
                if process.poll() is None:
                    os.kill(one, signal.SIGKILL)


class Cluster(NamedTuple):
    """A standalone master and its workers."""

    url: str
    workers: Sequence[Machine]

    def executors(self) -> list[int]:
        return [one for worker in self.workers for one in executors(worker.process.pid)]

    def python_workers(self) -> list[int]:
        return [one for worker in self.workers for one in python_workers(worker.process.pid)]


@contextmanager
def standalone_cluster(hidden: Path, workers: int = 2, **more: str) -> Iterator[Cluster]:
    """A master and workers with a core each, in mount namespaces of their own."""
    port, program = free_port(), SPARK / "bin" / "spark-class"
    url, here = f"spark://127.0.0.1:{port}", ("--webui-port", "0", "--host")
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack:
        master = stack.enter_context(
            machine(
                hidden,
                "master",
                program,
                f"{deploy}.master.Master",
                *here,
                "127.0.0.1",
                "--port",
                port,
            )
        )
        wait_until_answers(port, *master)
        several = []
        for number in range(workers):
            # Executors of one host would read each other's files, and these cannot.
            host = f"127.0.0.{number + 2}"
            worker = (f"{deploy}.worker.Worker", *here, host, "--cores", 1, "--memory", "1g", url)
            own = {**more, "SPARK_LOCAL_IP": host}
            several.append(
                stack.enter_context(machine(hidden, f"worker{number}", program, *worker, **own))
            )
        yield Cluster(url, several)


@contextmanager
def connect_server(hidden: Path, master: str, **more: str) -> Iterator[tuple[str, Machine]]:
    """A Spark Connect server in a mount namespace of its own, and its address."""
    port = free_port()
    submit = (
        SPARK / "bin" / "spark-submit", "--master", master,
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--conf", f"spark.connect.grpc.binding.port={port}",
        "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1",
        "--conf", "spark.ui.port=0", "--name", "Connect", "spark-internal",
    )  # fmt: skip
    with machine(hidden, "connect", *submit, **more) as server:
        wait_until_answers(port, *server)
        yield f"sc://127.0.0.1:{port}", server
