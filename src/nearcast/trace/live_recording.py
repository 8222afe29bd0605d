"""The trace of a live run: a `Recorder` collects rows, a thread writes a file every few seconds.

Memory is bounded. If the disk or the store fails or is too slow, recording ends and an error is
logged: what was written before is a valid trace, while a trace with a gap would only look valid.
Later rows are counted as lost, and the service goes on.
"""

import logging
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

import numpy as np
import pyarrow as pa

from nearcast.errors import TraceError
from nearcast.scenario import Scenario, Setting, to_json
from nearcast.space.motion import SECOND, Time
from nearcast.storage import PathInput
from nearcast.trace.arrow_columns import number_column, text_column
from nearcast.trace.recorder import Recorder
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import TraceFolder

LOG = logging.getLogger("nearcast.live")
ROTATE_S = 3.0
WAITING = 256 * 2**20  # bytes of rows that may wait for the disk or the store
ROWS = 200_000  # at most so many are held before they are handed to the thread: a short pause
UNTIL_STOPPED = 1e7  # seconds: a live run has no other end


class BackgroundWriter:
    """A sink that never blocks: its own thread writes into the folder."""

    def __init__(self, folder: TraceFolder, waiting: int = WAITING) -> None:
        self.failure = ""
        self.lost = 0  # rows that came after a failure
        self.beside: list[Callable[[], Mapping[str, pa.Table]]] = []  # rows that others sum up
        self._folder, self._most = folder, waiting
        self._waiting, self._lock = 0, Lock()
        self._pieces: SimpleQueue[Mapping[str, pa.Table] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="nearcast-trace", daemon=True)
        self._thread.start()

    def write(self, tables: Mapping[str, pa.Table]) -> None:
        whole = dict(tables)
        for more in self.beside:
            whole |= more()
        size = sum(table.nbytes for table in whole.values())
        with self._lock:
            if not self.failure and self._waiting + size > self._most:
                self.fail(f"{self._folder.path} takes rows too slowly")
            if self.failure:
                self.lost += sum(table.num_rows for table in whole.values())
                return
            self._waiting += size
        self._pieces.put(whole)

    def close(self) -> None:
        """Wait until all is written."""
        self._pieces.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (tables := self._pieces.get()) is not None:
            rows = sum(table.num_rows for table in tables.values())
            try:
                self._folder.write(tables)
            except TraceError as why:
                with self._lock:
                    self.fail(str(why))
                    self.lost += rows
            with self._lock:
                self._waiting -= sum(table.nbytes for table in tables.values())

    def fail(self, why: str) -> None:
        """Nothing more is written; this is logged once."""
        if not self.failure:
            self.failure = why
            LOG.error("recording has ended: %s", why)


class MessageSums:
    """Sums of the messages between the node and its clients, per second, client and kind."""

    def __init__(self) -> None:
        self._rows: list[tuple[Time, int, int, str, int, int]] = []

    def add(self, t: Time, node: int, to: int, kind: str, size: int, copies: int) -> None:
        if copies:
            self._rows.append((t - t % SECOND, node, to, kind, size, copies))

    def take(self) -> dict[str, pa.Table]:
        rows, self._rows = self._rows, []
        if not rows:
            return {}
        t, node, to, kind, size, copies = zip(*rows, strict=True)
        numbers = [number_column(np.array(column, np.int64)) for column in (t, node, to)]
        nothing = number_column(np.zeros(len(rows), np.int64), np.ones(len(rows), np.bool_))
        columns = [
            *numbers, text_column(kind), number_column(np.array(size, np.int64)), nothing, nothing,
            number_column(np.zeros(len(rows), np.bool_)), number_column(np.array(copies, np.int64)),
        ]  # fmt: skip
        return {"messages": pa.Table.from_arrays(columns, schema=TABLES["messages"])}


class LiveRecording:
    """The trace of a live run, from its first moment to its end."""

    def __init__(self, path: PathInput, started: Time, settings: dict[str, Setting]) -> None:
        scenario = Scenario(
            protocol="live", workload="live", nodes=1, seconds=UNTIL_STOPPED,
            settings={**settings, "started": started},
        )  # fmt: skip
        self.sums = MessageSums()
        self._folder = TraceFolder(path, to_json(scenario))
        self.path = self._folder.path
        self.writer = BackgroundWriter(self._folder)
        self.writer.beside.append(self.sums.take)
        self.recorder = Recorder(self.writer, "all", limit=ROWS)

    def rotate(self) -> None:
        """Hand the rows so far to the writer."""
        self.recorder.flush()

    def close(self, summary: dict[str, Any]) -> None:
        """Write the last rows and the summary, which says that the run ended by itself."""
        self.recorder.close()
        self.writer.write({})
        self.writer.close()
        if not self.writer.failure:
            try:
                self._folder.finish(summary | {"rows": self.recorder.counts})
            except TraceError as why:
                self.writer.fail(str(why))
