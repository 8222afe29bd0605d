"""Where Spark runs: what it is given there, what is refused, and what is said."""

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from nearcast.cli.main import fail, main
from nearcast.errors import SparkUnavailableError
from nearcast.pipeline.spark import connect, session
from nearcast.pipeline.spark.tasks import map_each
from support.ports import CLOSED
from support.small_traces import a_bit_of_everything, write_trace

ROOT = Path(__file__).parent.parent.parent.parent
# What a session of Spark Connect does not have, and who may use it: only if there is a Java here.
CLASSIC = re.compile(r"\.(sparkContext|rdd|_jsparkSession|_jdf|_jvm|_jsc|_sc|_gateway)\b")
WITH_JAVA = {"session.py", "sql.py", "archive_classes.py"}


def test_no_job_uses_what_spark_connect_does_not_have() -> None:
    folders = (
        ROOT / "src" / name for name in ("nearcast/pipeline", "nearcast/cli", "nearcast_papers")
    )
    found = [
        f"{file.relative_to(ROOT)}: {used[0]}"
        for folder in folders
        for file in folder.rglob("*.py")
        if file.name not in WITH_JAVA and (used := CLASSIC.search(file.read_text()))
    ]
    assert found == []


# What is refused.


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return str(write_trace(tmp_path / "trace", a_bit_of_everything()))


@pytest.mark.parametrize(
    ("where", "code", "said"),
    [
        (["--master", "cluster"], 2, "no Spark master 'cluster'"),
        (["--master", "local[x]"], 2, "no Spark master 'local[x]'"),
        (["--master", "spark://host"], 2, "needs spark://HOST:PORT"),
        (["--master", "spark://host:99999"], 2, "needs spark://HOST:PORT"),
        (["--master", "sc://host:1"], 2, "give it as --remote"),
        (["--master", "spark://127.0.0.1:{port}"], 1, "no Spark master answers at 127.0.0.1:"),
        (["--master", "spark://127.0.0.1:{port},127.0.0.1:{port}"], 1, "no Spark master answers"),
        (["--remote", "spark://host:1"], 2, "--remote needs sc://HOST:PORT"),
        (["--remote", "sc://"], 2, "--remote needs sc://HOST:PORT"),
        (["--remote", "sc://host:port"], 2, "--remote needs sc://HOST:PORT"),
        (["--remote", "sc://127.0.0.1:{port}/;token=hush"], 1, "sc://127.0.0.1:{port}: no server"),
        (["--follow", "--remote", "sc://host:1"], 2, "a Spark Connect server cannot follow"),
        (["--conf", "spark.ui.port"], 2, "--conf needs KEY=VALUE"),
    ],
)
def test_a_wrong_or_silent_place_is_one_line(
    where: list[str], code: int, said: str, trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    port = str(CLOSED)
    arguments = [word.replace("{port}", port) for word in where]
    assert main(["analyse", trace, *arguments]) == code
    printed = capsys.readouterr()
    assert printed.err.startswith("nearcast: ") and printed.err.count("\n") == 1
    assert said.replace("{port}", port) in printed.err
    assert "hush" not in printed.err and printed.out == ""


def test_a_master_and_a_server_exclude_each_other(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["analyse", trace, "--master", "local[2]", "--remote", "sc://host:1"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(ValueError, match="exclude each other"):
        session.start("local[2]", remote="sc://host:1")


def test_what_answers_but_is_no_connect_server_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connect, "CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=accept_all, args=(listener,), daemon=True).start()
        with pytest.raises(SparkUnavailableError, match="no Spark Connect server, or not with"):
            connect.check_server(f"sc://127.0.0.1:{listener.getsockname()[1]}")
        listener.shutdown(socket.SHUT_RDWR)


def accept_all(listener: socket.socket) -> None:
    kept = []
    try:
        while True:
            kept.append(listener.accept())
    except OSError:
        for client, _ in kept:
            client.close()


@pytest.mark.parametrize("version", ["3.5.1", "4.1.2", "5.0.0", "unknown"])
def test_a_server_of_another_age_is_refused(version: str) -> None:
    with pytest.raises(SparkUnavailableError, match=rf"has Spark {version}; Nearcast needs 4\.2"):
        connect.check_version(version, "sc://host:1")


def test_servers_of_our_age_are_not_refused() -> None:
    for version in ("4.2.0", "4.3.0", "4.10.1-SNAPSHOT"):
        connect.check_version(version, "sc://host:1")


def test_the_library_that_connect_needs_is_named(
    trace: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import builtins

    real = builtins.__import__

    def without_grpc(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == "grpc":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_grpc)
    assert main(["analyse", trace, "--remote", "sc://127.0.0.1:1"]) == 1
    assert "pip install 'nearcast[connect]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("page", "line"),
    [
        (
            "An exception was thrown\n  File x\nModuleNotFoundError: No module named 'numba'\n",
            "executors have no module numba; give them an environment",
        ),
        (
            'java.io.IOException: Cannot run program "/a/python": error=2, No such file',
            "executors have no /a/python; give them",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version (3.9)\nmore",
            "executors have another Python: Python in worker has different version (3.9); give",
        ),
    ],
)
def test_what_executors_lack_is_told_in_a_line(
    page: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fail(1, RuntimeError(page)) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"nearcast: {line}") and said.count("\n") == 1 and len(said) < 200


# What Spark is given.


class Built(Exception):  # noqa: N818
    """Instead of a session."""


class FakeBuilder:
    def __init__(self) -> None:
        self.options: dict[str, str] = {}

    def config(self, name: str, value: str) -> "FakeBuilder":
        self.options[name] = value
        return self

    def master(self, url: str) -> "FakeBuilder":
        return self.config("spark.master", url)

    def appName(self, name: str) -> "FakeBuilder":  # noqa: N802
        return self.config("spark.app.name", name)

    def getOrCreate(self) -> None:  # noqa: N802
        raise Built


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> FakeBuilder:
    builder = FakeBuilder()
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_REMOTE"):  # restored at the end
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.delenv("SPARK_REMOTE")
    monkeypatch.setattr(session.SparkSession, "builder", builder)
    return builder


def started(builder: FakeBuilder, *arguments: str, **more: Any) -> dict[str, str]:
    with pytest.raises(SparkUnavailableError):
        session.start(*arguments, **more)
    return builder.options


def test_a_cluster_gets_credentials_and_keeps_its_page_and_partitions(
    built: FakeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("AZURE_STORAGE_KEY", "hush")
    options = started(built, "yarn", conf={"spark.executor.memory": "3g"})
    assert options["spark.master"] == "yarn"
    assert options["spark.executor.memory"] == "3g"
    hidden = re.compile(options["spark.redaction.regex"])
    for name, value in options.items():
        if value == "hush":
            assert name.startswith("spark.executorEnv.") and hidden.search(name)
    assert "hush" in options.values()
    ours = {"spark.ui.enabled", "spark.sql.shuffle.partitions", "spark.driver.host"}
    assert ours.isdisjoint(options)


def test_this_machine_has_no_page_and_listens_only_to_itself(built: FakeBuilder) -> None:
    options = started(built)
    assert options["spark.master"] == "local[*]"
    assert options["spark.ui.enabled"] == "false"
    assert options["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.memory" in options
    assert not any(name.startswith("spark.executorEnv.") for name in options)


def test_what_spark_submit_says_has_precedence(
    built: FakeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {
        "spark.master": "yarn", "spark.app.name": "mine", "spark.sql.session.timeZone": "CET",
        "spark.executorEnv.AWS_REGION": "eu-west-1",
    }  # fmt: skip
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setattr(session, "submitted_settings", lambda: said)
    options = started(built)
    assert options["spark.master"] == "yarn"
    # Java runs already.
    already = {"spark.driver.memory", "spark.driver.extraJavaOptions"}
    assert options.keys().isdisjoint(already | (said.keys() - {"spark.master"}))
    with pytest.raises(ValueError, match="spark-submit has chosen the master already"):
        session.start("local[2]")


def test_a_connect_server_gets_settings_of_sessions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(connect, "connect", lambda *arguments: given.append(arguments))
    for name, value in {"remote": "sc://one:1"}.items():
        session.start(lean=True, conf={"spark.sql.ansi.enabled": "true"}, **{name: value})
    monkeypatch.setenv("SPARK_REMOTE", "sc://two:1")
    session.start()
    (url, settings, chosen), (other, _, _) = given
    assert (url, other) == ("sc://one:1", "sc://two:1")
    assert chosen == {"spark.sql.ansi.enabled": "true"}
    assert settings and all(name.startswith("spark.sql.") for name in settings)


# On any session.


def test_a_plan_tells_how_many_tasks_run_at_once(spark: SparkSession) -> None:
    assert session.planned_tasks(spark) == spark.sparkContext.defaultParallelism == 2
    assert session.parallel_tasks(spark) == 2


def test_each_piece_of_work_has_a_task_of_its_own(spark: SparkSession) -> None:
    schema = pa.schema([("text", pa.string()), ("task", pa.int64())])

    def work(text: bytes) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        yield pa.record_batch([[text.decode()], [context.partitionId()]], schema=schema)

    found = map_each(spark, [b"a", b"b", b"c"], work, schema).toArrow().to_pylist()
    assert sorted(row["text"] for row in found) == ["a", "b", "c"]
    assert sorted(row["task"] for row in found) == [0, 1, 2]
