"""Where files are: on this machine, or in a store that a URI names (S3, GCS, Azure, HDFS).

`locate` makes a path of a text. A local path stays a `pathlib.Path`; a URI becomes a `RemotePath`,
which has the same verbs as far as Nearcast uses them. The functions below take both kinds.

A file is complete or absent. On this machine it is written under a hidden name and then renamed. An
object store cannot rename, but an object appears only when its upload is complete.

Credentials, region and endpoint come from the usual environment of each store (for S3
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL, …), or from the parameters
that Arrow has for URIs: s3://bucket/key?region=eu-central-1&endpoint_override=localhost:9000.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from errno import ENOENT
from functools import lru_cache
from io import RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar
from urllib.parse import parse_qsl, unquote, urlencode

from msgspec import Struct

from nearcast.errors import StorageError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs
    import pyarrow.parquet as pq

SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
# Variables by which stores are reached: workers on other machines need them too.
VARIABLES = ("AWS_", "GOOGLE_", "AZURE_", "NEARCAST_STORAGE_", "HADOOP_", "ARROW_LIBHDFS_DIR")
TIMEOUT_S, ATTEMPTS = 10.0, 3  # of a request, unless the variables below say otherwise
TIMEOUT_VARIABLE, ATTEMPTS_VARIABLE = "NEARCAST_STORAGE_TIMEOUT_S", "NEARCAST_STORAGE_ATTEMPTS"

CONCURRENT_REQUESTS = 16
S3_PARAMETERS = ("region", "scheme", "endpoint_override")

# One slash: of a `Path` that was made of a URI.
_URI = re.compile(r"([a-z][a-z0-9+.-]+):(//?)(.*)", re.IGNORECASE | re.DOTALL)


class RemotePath(Struct, frozen=True, order=True):
    """A path in a store, with the verbs of `pathlib.Path`. Folders are prefixes of names."""

    root: str  # s3://bucket
    key: str  # without slashes at its ends; empty: the bucket itself
    query: str = ""  # parameters of the store: ?region=…

    def __str__(self) -> str:
        return f"{self.root}/{self.key}{self.query}"

    def __truediv__(self, more: str) -> "RemotePath":
        return self._with_key(f"{self.key}/{more}")

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def stem(self) -> str:
        return Path(self.name).stem

    @property
    def suffix(self) -> str:
        return Path(self.name).suffix

    @property
    def parent(self) -> "RemotePath":
        return self._with_key(self.key.rpartition("/")[0])

    def with_name(self, name: str) -> "RemotePath":
        return self.parent / name

    def resolve(self) -> "RemotePath":
        return self

    def absolute(self) -> "RemotePath":
        return self

    def mkdir(self, **_: bool) -> None:
        """Nothing: a folder is there as soon as there is a file in it."""

    def exists(self) -> bool:
        from pyarrow.fs import FileType

        return bool(self._info().type != FileType.NotFound)

    def is_dir(self) -> bool:
        from pyarrow.fs import FileType

        return bool(self._info().type == FileType.Directory)

    def iterdir(self) -> Iterator["RemotePath"]:
        return (self / name for name in list_names(self))

    def read_bytes(self) -> bytes:
        with _explained(self):
            files, path = self._filesystem()
            with files.open_input_stream(path) as stream:
                content: bytes = stream.read()
                return content

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            with _explained(self):
                files, path = self._filesystem()
                files.delete_file(path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def _with_key(self, key: str) -> "RemotePath":
        return RemotePath(self.root, key.strip("/"), self.query)

    def _filesystem(self) -> tuple["pyarrow.fs.FileSystem", str]:
        """The store, and the name of this path in it."""
        files, base = _connect(self.root, self.query, tuple(environment().items()))
        return files, f"{base}/{self.key}".rstrip("/") or "/"

    def _info(self) -> "pyarrow.fs.FileInfo":
        with _explained(self):
            files, path = self._filesystem()
            return files.get_file_info(path)


T = TypeVar("T")
AnyPath: TypeAlias = Path | RemotePath
PathInput: TypeAlias = str | os.PathLike[str] | RemotePath


def locate(path: PathInput) -> AnyPath:
    """The path that a text names: a URI with a scheme of `SCHEMES`, or a path of this machine."""
    if isinstance(path, RemotePath):
        return path
    text = os.fspath(path)
    found = _URI.match(text)
    if found is None:
        return Path(path)
    scheme, rest = found[1].lower(), found[3]
    if scheme == "file":
        return Path("/" + unquote(rest.lstrip("/")))
    if scheme not in SCHEMES:
        if len(found[2]) == 1:
            return Path(path)
        raise ValueError(f"{text}: no storage {scheme!r}; there are {', '.join(SCHEMES)}")
    place, mark, query = rest.partition("?")
    authority, _, key = place.partition("/")
    if not authority and scheme not in ("hdfs", "viewfs"):
        raise ValueError(f"{text} names no bucket")
    if scheme == "s3":
        _check_s3(authority, query)
    return RemotePath(f"{scheme}://{authority}", key.strip("/"), mark + query)


def _check_s3(authority: str, query: str) -> None:
    if "@" in authority:
        raise ValueError(
            "an s3:// URI has no credentials in it, because it is printed;"
            " set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    for name, _ in parse_qsl(query, keep_blank_values=True):
        if name not in S3_PARAMETERS:
            raise ValueError(
                f"no parameter {name!r} of s3://; there are {', '.join(S3_PARAMETERS)}"
            )


def list_folder(folder: AnyPath) -> dict[str, bool]:
    """By the names in a folder, in order: whether it is a folder itself. One request.

    Nothing if there is no such folder.
    """
    if isinstance(folder, Path):
        try:
            with os.scandir(folder) as entries:
                found = {entry.name: entry.is_dir() for entry in entries}
        except (FileNotFoundError, NotADirectoryError):
            found = {}
    else:
        from pyarrow.fs import FileSelector, FileType

        with _explained(folder):
            files, path = folder._filesystem()
            infos = files.get_file_info(FileSelector(path, allow_not_found=True))
        found = {info.base_name: info.type == FileType.Directory for info in infos}
    return dict(sorted(found.items()))


def list_names(folder: AnyPath) -> list[str]:
    """The names in a folder, in order; none if there is no such folder. One request."""
    return list(list_folder(folder))


def open_input(file: AnyPath) -> "RawIOBase":
    """Open a file for reading anywhere in it. Errors while reading are StorageErrors too."""
    if isinstance(file, Path):
        return open(file, "rb", buffering=0)
    return _RemoteFile(file)


def arrow_source(file: AnyPath) -> "str | RawIOBase":
    """What Arrow reads a file from; from one of this machine by itself, which is faster."""
    return str(file) if isinstance(file, Path) else open_input(file)


def open_parquet(file: AnyPath, **options: Any) -> "pq.ParquetFile":
    """Open a Parquet file; of a remote one, neighbouring columns are read in one request."""
    import pyarrow.parquet as pq

    remote = isinstance(file, RemotePath)
    return pq.ParquetFile(arrow_source(file), pre_buffer=remote, **options)


def encode_parquet(rows: "pa.Table", **options: Any) -> "pa.Buffer":
    """A table as the content of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = pa.BufferOutputStream()
    pq.write_table(rows, content, **options)
    return content.getvalue()


def map_files(act: Callable[[AnyPath], T], files: Sequence[AnyPath]) -> Iterator[T]:
    """What `act` gives for each file, in order.

    Requests to a store take long and cost little: several are made at once.
    """
    if all(isinstance(file, Path) for file in files):
        yield from map(act, files)
        return
    with ThreadPoolExecutor(CONCURRENT_REQUESTS) as pool:
        yield from pool.map(act, files)


def write_whole(file: AnyPath, content: "bytes | pa.Buffer", attempt: str = "") -> None:
    """Write a file, complete or not at all; it replaces one of the same name.

    `attempt` tells apart those who may write the same file at the same time.
    """
    write_all({file: content}, attempt)


def write_all(contents: Mapping[AnyPath, "bytes | pa.Buffer"], attempt: str = "") -> None:
    """Write files, each complete or not at all, which appear in this order.

    On this machine, the first appears when all are written, so a full disk leaves none of them.
    """
    hidden: dict[Path, Path] = {}
    try:
        for file, content in contents.items():
            if isinstance(file, Path):
                hidden[file] = file.with_name(f".{file.name}{attempt}.unfinished")
                hidden[file].write_bytes(content)
        for file, content in contents.items():
            if isinstance(file, Path):
                os.replace(hidden[file], file)
            else:
                _upload(file, content)
    finally:
        for unnamed in hidden.values():
            with suppress(OSError):
                unnamed.unlink(missing_ok=True)


def _upload(file: RemotePath, content: "bytes | pa.Buffer") -> None:
    with _explained(file):
        files, path = file._filesystem()
        stream = files.open_output_stream(path)
        # No `with`: it would complete the file after an error, too.
        stream.write(content)
        stream.close()


def open_output(file: AnyPath) -> "pa.NativeFile":
    """Open a file for writing: for what is too long to be held in memory.

    It is complete when it is closed, also after an error: its name must be one that nobody reads.
    """
    import pyarrow as pa

    if isinstance(file, Path):
        return pa.OSFile(str(file), "wb")
    with _explained(file):
        files, path = file._filesystem()
        return files.open_output_stream(path)


@contextmanager
def writing_whole(file: AnyPath) -> Iterator["pa.NativeFile"]:
    """Write a file piece by piece; it is there, complete, when the block ends without an error."""
    if isinstance(file, Path) and not file.parent.is_dir():
        raise FileNotFoundError(ENOENT, "there is no such folder", str(file.parent))
    hidden = file.with_name(f".{file.name}.unfinished")
    try:
        with open_output(hidden) as output:
            yield output
        if isinstance(hidden, Path):
            os.replace(hidden, str(file))
        else:
            assert isinstance(file, RemotePath)
            copy_file(hidden, file)
    finally:
        hidden.unlink(missing_ok=True)


def copy_file(source: RemotePath, target: RemotePath) -> None:
    """Copy a file within its store; the content does not pass through here."""
    with _explained(target):
        files, path = source._filesystem()
        files.copy_file(path, target._filesystem()[1])


def remove_tree(folder: AnyPath) -> None:
    """Remove a folder and all that is in it; nothing happens if there is none."""
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
        return
    with _explained(folder):
        files, path = folder._filesystem()
        with suppress(FileNotFoundError):
            files.delete_dir(path)


class _RemoteFile(RawIOBase):
    """A file of a store. Arrow reports trouble with the store and with the content alike; here
    both can be told apart."""

    def __init__(self, file: RemotePath) -> None:
        self._file = file
        with _explained(file):
            files, path = file._filesystem()
            self._stream = files.open_input_file(path)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def read(self, size: int | None = -1) -> bytes:
        with _explained(self._file):
            content: bytes = self._stream.read(None if size is None or size < 0 else size)
            return content

    def readinto(self, buffer: Any) -> int:
        with _explained(self._file):
            return int(self._stream.readinto(buffer))


# Stores.


def environment() -> dict[str, str]:
    """The variables of this process by which stores are reached."""
    return {name: value for name, value in os.environ.items() if name.startswith(VARIABLES)}


@lru_cache(maxsize=64)
def _connect(
    root: str, query: str, variables: tuple[tuple[str, str], ...]
) -> tuple["pyarrow.fs.FileSystem", str]:
    """The store of a URI, and where the URI's bucket is in it.

    A process connects once, and again if its environment has changed.
    """
    from pyarrow.fs import AwsStandardS3RetryStrategy, FileSystem, S3FileSystem

    parameters = dict(parse_qsl(query.removeprefix("?"), keep_blank_values=True))
    given = dict(variables)
    timeout_s = float(given.get(TIMEOUT_VARIABLE, TIMEOUT_S))
    attempts = int(given.get(ATTEMPTS_VARIABLE, ATTEMPTS))
    scheme, _, authority = root.partition("://")
    if scheme == "s3":
        for variable in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):  # Arrow does not read these
            if given.get(variable):
                parameters.setdefault("endpoint_override", given[variable])
        store = S3FileSystem(
            **parameters,
            connect_timeout=timeout_s,
            request_timeout=timeout_s,
            retry_strategy=AwsStandardS3RetryStrategy(max_attempts=attempts),
            allow_delayed_open=True,  # a small file is one request
        )
        return store, authority
    if scheme in ("gs", "gcs"):  # by itself it tries for a quarter of an hour
        parameters.setdefault("retry_limit_seconds", str(timeout_s * attempts))
    files, base = FileSystem.from_uri(f"{root}/?{urlencode(parameters)}".rstrip("?"))
    return files, base.rstrip("/")


@contextmanager
def _explained(file: RemotePath) -> Iterator[None]:
    """Errors name the file and the reason in one line."""
    try:
        yield
    except (StorageError, ModuleNotFoundError):
        raise
    except FileNotFoundError:
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), str(file)) from None
    except (OSError, ImportError, ValueError, NotImplementedError) as error:  # also Arrow's
        _raise_error(file, error)


def _raise_error(file: RemotePath, error: Exception) -> NoReturn:
    line = (str(error).splitlines() or [type(error).__name__])[0]
    for noise in (r"^When .*?: (?=AWS Error)", r" \(Request ID: .*", r"curlCode: \d+, "):
        line = re.sub(noise, "", line)
    raise StorageError(f"{file}: {line}") from error
