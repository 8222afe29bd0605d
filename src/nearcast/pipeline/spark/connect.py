"""A session on a Spark Connect server (`--remote sc://HOST:PORT`).

This process has no Spark then: it sends plans, and functions with the package they are from, and
gets rows. Only settings of the session can be sent; memory, cores and credentials are the server's.
"""

import socket
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from nearcast.errors import SparkUnavailableError
from nearcast.pipeline.spark.package_archive import write_package_archive

OLDEST_SPARK = (4, 2)
CONNECT_S = 20.0  # to wait for a server's first answer
RETRIES = 6  # of a request that a server does not answer: about a minute in all


def connect(url: str, settings: Mapping[str, str], chosen: Mapping[str, str]) -> SparkSession:
    """A session on the server at `url`, with the package and these settings (`spark.sql.…`).

    It is an error if one of the `chosen` cannot be set in a session.
    """
    import google.rpc  # noqa: F401 (so that what is missing has a name: pyspark does not give it)
    import grpc
    import grpc_status  # noqa: F401
    import zstandard  # noqa: F401
    from pyspark.sql.connect.client.retries import DefaultPolicy

    place = check_server(url)
    builder = SparkSession.builder.config("spark.remote", url)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
        session.client.set_retry_policies([DefaultPolicy(max_retries=RETRIES)])
        check_version(session.version, place)
        for name, value in chosen.items():
            session.conf.set(name, value)
        with TemporaryDirectory(prefix="nearcast-") as folder:
            archive = write_package_archive(Path(folder))
            session.addArtifacts(str(archive), pyfile=True)
    except (PySparkException, grpc.RpcError) as why:
        raise SparkUnavailableError(f"{place}: {_reason(why)}") from None
    return session


def check_server(url: str) -> str:
    """Whether a Spark Connect server answers there; gives its address without secrets."""
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder

    try:
        builder = DefaultChannelBuilder(url)
        host, port = builder.url.hostname or "", builder.endpoint.rpartition(":")[2]
    except ValueError as why:
        raise ValueError(f"--remote needs sc://HOST:PORT: {str(why).splitlines()[0]}") from None
    place = f"sc://{builder.endpoint}"
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except OSError as why:
        raise SparkUnavailableError(f"{place}: no server answers there: {why}") from None
    channel = builder.toChannel()
    try:
        grpc.channel_ready_future(channel).result(CONNECT_S)
    except grpc.FutureTimeoutError:
        raise SparkUnavailableError(
            f"{place}: what answers there is no Spark Connect server, or not with"
            f" {'TLS' if builder.secure else 'plain text'}"
        ) from None
    finally:
        channel.close()
    return place


def check_version(version: str, place: str) -> None:
    """Python functions run with the server's Spark, which must know what ours uses."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers < OLDEST_SPARK or numbers[0] != OLDEST_SPARK[0]:
        oldest = ".".join(map(str, OLDEST_SPARK))
        raise SparkUnavailableError(
            f"{place}: has Spark {version}; Nearcast needs {oldest} or newer, below"
            f" {OLDEST_SPARK[0] + 1}"
        )


def _reason(why: BaseException) -> str:
    details = getattr(why, "details", None)  # of a gRPC error, whose text is a page
    text = details() if callable(details) else str(why)
    return " ".join(str(text).split("\n")[0].split())
