"""A real S3 endpoint on this machine (moto's server), and a way to break it."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Literal
from urllib.request import Request, urlopen

from nearcast.storage import RemotePath, locate

BUCKET = "nearcast"
KEYS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}

Fault = Literal["none", "error", "silence", "away"]
_REFUSAL = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@contextmanager
def s3_endpoint() -> Iterator[str]:
    """The address of an S3 server with an empty bucket."""
    scratch = TemporaryDirectory(prefix="moto-")
    os.environ["MOTO_RECORDER_FILEPATH"] = f"{scratch.name}/requests"  # if a test records them
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with urlopen(Request(f"http://{host}:{port}/{BUCKET}", method="PUT")):
        pass
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()
        scratch.cleanup()


def in_bucket(endpoint: str, name: str, bucket: str = BUCKET) -> RemotePath:
    """A path whose URI names its endpoint, so that every process finds it."""
    found = locate(f"s3://{bucket}/{name}?endpoint_override={endpoint}")
    assert isinstance(found, RemotePath)
    return found


class FaultyProxy:
    """Between a client and a server, over TCP: passes bytes on, answers errors or nothing, or is
    away."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("http://").partition(":")
        self._server = host, int(port)
        self.fault: Fault = "none"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        Thread(target=self._accept, daemon=True).start()

    def break_with(self, fault: Fault) -> None:
        """From now on; connections that were open before break."""
        self.fault = fault
        sockets = [*self._open, self._listener] if fault == "away" else self._open
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        if fault == "away":
            self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(client)
            if self.fault == "none":
                server = socket.create_connection(self._server)
                self._open.append(server)
                for source, target in ((client, server), (server, client)):
                    Thread(target=_pass_on, args=(source, target), daemon=True).start()
            elif self.fault == "error":
                Thread(target=_refuse, args=(client,), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while received := source.recv(65_536):
            target.sendall(received)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _refuse(client: socket.socket) -> None:
    with suppress(OSError):
        client.recv(65_536)
        client.sendall(_REFUSAL)
        client.shutdown(socket.SHUT_RDWR)
