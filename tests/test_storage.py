"""Paths of this machine and URIs of stores: the same verbs, and files that are whole or absent."""

import os
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from nearcast import storage
from nearcast.errors import StorageError
from nearcast.storage import (
    AnyPath,
    RemotePath,
    copy_file,
    encode_parquet,
    list_names,
    locate,
    open_input,
    open_parquet,
    remove_tree,
    write_all,
    write_whole,
)
from support.object_store import FaultyProxy, in_bucket
from support.ports import CLOSED

ROWS = pa.table({"a": list(range(3000)), "b": [str(n) for n in range(3000)]})


@pytest.fixture(params=["local", "remote"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> AnyPath:
    if request.param == "local":
        return tmp_path
    remote = request.getfixturevalue("remote")
    assert isinstance(remote, RemotePath)
    return remote


# Paths.


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("walk", "walk"),
        ("/tmp/walk/", "/tmp/walk"),
        ("a:b/c", "a:b/c"),
        ("run:/odd", "run:/odd"),
        ("file:///tmp/a%20walk", "/tmp/a walk"),
        ("file:/tmp/walk", "/tmp/walk"),
    ],
)
def test_a_local_path_stays_a_path(text: str, path: str) -> None:
    assert locate(text) == Path(path)


@pytest.mark.parametrize(
    ("text", "root", "key", "query"),
    [
        ("s3://bucket/a/walk/", "s3://bucket", "a/walk", ""),
        ("S3://bucket", "s3://bucket", "", ""),
        ("s3://b/a?region=x", "s3://b", "a", "?region=x"),
        ("gs://bucket/a b", "gs://bucket", "a b", ""),
        ("abfs://box@mine.dfs.core.windows.net/a", "abfs://box@mine.dfs.core.windows.net", "a", ""),
        ("hdfs://host:9000/a", "hdfs://host:9000", "a", ""),
        ("hdfs:///a", "hdfs://", "a", ""),
    ],
)
def test_a_uri_is_a_remote_path(text: str, root: str, key: str, query: str) -> None:
    assert locate(text) == RemotePath(root, key, query)
    assert locate(Path(text)) == RemotePath(root, key, query) or text.startswith(("S3", "hdfs:///"))
    assert locate(locate(text)) == pickle.loads(pickle.dumps(locate(text)))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ftp://host/a", "no storage 'ftp'; there are s3, gs"),
        ("s3:///a", "names no bucket"),
        ("s3://key:secret@bucket/a", "no credentials in it"),
        ("s3://bucket/a?secret=1", "no parameter 'secret' of s3://; there are region, scheme"),
    ],
)
def test_a_wrong_uri_is_refused_in_one_line_without_its_secrets(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        locate(text)
    assert "\n" not in str(caught.value) and "key:secret" not in str(caught.value)


def test_parts_of_a_remote_path_are_those_of_a_path() -> None:
    path = locate("s3://bucket/walks/one.trace?region=x")
    like = Path("/walks/one.trace")
    assert isinstance(path, RemotePath)
    assert (path.name, path.stem, path.suffix) == (like.name, like.stem, like.suffix)
    assert str(path) == "s3://bucket/walks/one.trace?region=x"
    assert str(path / "deliveries") == "s3://bucket/walks/one.trace/deliveries?region=x"
    assert str(path.parent) == "s3://bucket/walks?region=x"
    assert path.with_name("two") == path.parent / "two"
    assert path.resolve() == path.absolute() == path
    assert sorted([path / "b", path / "a"]) == [path / "a", path / "b"]


# Files.


def test_files_are_written_listed_read_and_removed(folder: AnyPath) -> None:
    root = folder / "root"
    assert list_names(root) == [] and not root.exists() and not root.is_dir()
    (root / "inner").mkdir(parents=True)
    write_whole(root / "inner" / "b.bin", b"old")
    write_whole(root / "inner" / "b.bin", b"new")
    write_whole(root / "a.bin", pa.py_buffer(b""))
    assert list_names(root) == ["a.bin", "inner"]
    assert [path.name for path in sorted(root.iterdir())] == ["a.bin", "inner"]
    assert list_names(root / "a.bin") == []
    assert root.is_dir() and (root / "a.bin").exists() and not (root / "a.bin").is_dir()
    assert (root / "inner" / "b.bin").read_bytes() == b"new"
    assert (root / "a.bin").read_bytes() == b""
    (root / "a.bin").unlink()
    (root / "a.bin").unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError) as caught:
        (root / "a.bin").unlink()
    assert str(caught.value.filename) == str(root / "a.bin")
    remove_tree(root)
    remove_tree(root)
    assert list_names(root) == [] and not (root / "inner" / "b.bin").exists()


def test_a_missing_file_has_its_name_in_the_error(folder: AnyPath) -> None:
    for read in (lambda: (folder / "no").read_bytes(), lambda: open_input(folder / "no")):
        with pytest.raises(FileNotFoundError) as caught:
            read()
        assert str(caught.value.filename) == str(folder / "no")


def test_a_table_is_read_back_row_group_by_row_group(folder: AnyPath) -> None:
    write_whole(folder / "t.parquet", encode_parquet(ROWS, row_group_size=1000))
    with open_parquet(folder / "t.parquet", page_checksum_verification=True) as file:
        assert file.num_row_groups == 3
        assert file.read_row_group(1, ["b"]).equals(ROWS.select(["b"]).slice(1000, 1000))
    with open_input(folder / "t.parquet") as opened:
        opened.seek(-4, os.SEEK_END)
        assert opened.read() == b"PAR1"


def test_a_large_file_is_uploaded_in_parts(remote: RemotePath) -> None:
    content = os.urandom(11 * 2**20)
    write_whole(remote / "large", content)
    assert (remote / "large").read_bytes() == content
    copy_file(remote / "large", remote / "copy")
    assert (remote / "copy").read_bytes() == content


def test_local_files_appear_together_and_in_order_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError):
        write_all({tmp_path / "a": b"1", tmp_path / "missing" / "b": b"2"})
    assert list_names(tmp_path) == []
    named: list[str] = []
    replace = os.replace

    def noted(source: Path, target: Path) -> None:
        # All are complete before the first gets its name.
        waiting = {name for name in list_names(tmp_path) if name.startswith(".")}
        assert waiting == {f".{name}.unfinished" for name in {"a", "b"} - set(named)}
        named.append(target.name)
        replace(source, target)

    monkeypatch.setattr(os, "replace", noted)
    write_all({tmp_path / "b": b"1", tmp_path / "a": b"2"})
    assert named == ["b", "a"]


# Stores that do not do what they should.


def fail(path: RemotePath, writing: bool = True) -> str:
    """What all verbs say: one line each, with the path in front."""
    lines = set()
    for act in (
        path.exists,
        path.read_bytes,
        lambda: list_names(path),
        lambda: open_input(path),
        *([lambda: write_whole(path, b"x")] if writing else []),
    ):
        with pytest.raises(StorageError) as caught:
            act()
        line = str(caught.value)
        assert line.startswith(f"{path}: ") and "\n" not in line and "Request ID" not in line
        lines.add(line.removeprefix(f"{path}: "))
    return " | ".join(sorted(lines))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(storage.TIMEOUT_VARIABLE, "3")
    monkeypatch.setenv(storage.ATTEMPTS_VARIABLE, "1")


@pytest.mark.usefixtures("impatient")
def test_a_store_that_is_away_fails_or_is_silent_is_named_in_one_line(endpoint: str) -> None:
    proxy = FaultyProxy(endpoint)
    path = in_bucket(proxy.endpoint, "some/file")
    write_whole(path, b"there")
    proxy.break_with("error")
    assert "HTTP status 503" in fail(path)
    proxy.break_with("silence")
    assert "too slow" in fail(path, writing=False)  # an upload waits a few seconds longer
    proxy.break_with("away")
    assert "connect" in fail(path)
    assert in_bucket(endpoint, "some/file").read_bytes() == b"there"


@pytest.mark.usefixtures("impatient")
def test_trouble_of_the_store_while_reading_is_told_from_a_damaged_file(endpoint: str) -> None:
    proxy = FaultyProxy(endpoint)
    path = in_bucket(proxy.endpoint, "damaged.parquet")
    write_whole(path, encode_parquet(ROWS)[:-8])
    with pytest.raises(pa.ArrowInvalid):
        open_parquet(path)
    write_whole(path, encode_parquet(ROWS, row_group_size=100))
    file = open_parquet(path)
    proxy.break_with("away")
    with pytest.raises(StorageError, match=r"damaged\.parquet"):
        file.read_row_group(20)


@pytest.mark.usefixtures("impatient")
def test_another_kind_of_store_that_is_away_is_named_in_one_line_too() -> None:
    endpoint = f"127.0.0.1:{CLOSED}"
    path = locate(f"gs://anonymous@bucket/file?endpoint_override={endpoint}&scheme=http")
    with pytest.raises(StorageError, match=r"^gs://.*/file\S*: .*connect") as caught:
        path.read_bytes()
    assert "\n" not in str(caught.value)


def test_a_bucket_that_does_not_exist_is_named(endpoint: str) -> None:
    path = in_bucket(endpoint, "a/file", bucket="nobody")
    with pytest.raises(StorageError, match=r"s3://nobody/a/file.*NO_SUCH_BUCKET"):
        write_whole(path, b"x")
    assert not path.exists()


def test_an_upload_that_breaks_off_leaves_nothing(endpoint: str, remote: RemotePath) -> None:
    proxy = FaultyProxy(endpoint)
    path = in_bucket(proxy.endpoint, remote.key) / "large"
    files, name = path._filesystem()
    stream = files.open_output_stream(name)
    stream.write(os.urandom(11 * 2**20))
    stream.flush()
    proxy.break_with("away")
    with pytest.raises(OSError):
        stream.write(b"the rest" * 2**20)
        stream.close()
    del stream  # which tries once more to complete it
    assert list_names(remote) == []


def test_the_environment_names_endpoint_and_keys(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = locate("s3://nearcast/by/environment")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    write_whole(plain, b"x")
    assert plain.read_bytes() == b"x"
    assert storage.environment()["AWS_ENDPOINT_URL"] == endpoint
    assert in_bucket(endpoint, "by/environment").exists()
