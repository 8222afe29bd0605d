"""The recorder: what a host calls to record a trace.

A run of a minute may leave a hundred million rows, so no row is ever a Python object: each table is
one growing block of packed rows, which numpy reads back as columns when they are handed to the
sink; many rows that come as columns stay columns. Texts are numbers until then. Whatever the
recording level leaves out or sums up, it does at that moment too, for all rows at once; while the
run goes on, a row is a row.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, Literal, TypeAlias, get_args, overload

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast.matching.matcher import Batch
from nearcast.model import predicates
from nearcast.model.publication import Publication
from nearcast.model.subscription import (
    Formula,
    NodeId,
    PublicationId,
    Subscription,
    SubscriptionId,
    Value,
)
from nearcast.space.motion import STILL, Moving, Path, Time
from nearcast.space.outlines import outline_text
from nearcast.space.shapes import EVERYWHERE, Shape, ShapeKind
from nearcast.trace.aggregate import NULL_INTEGER, last_of_each_instant, sum_messages
from nearcast.trace.arrow_columns import number_column, text_column
from nearcast.trace.schema import SHAPES, TABLES
from nearcast.trace.sinks import TraceSink

Level: TypeAlias = Literal["all", "sampled", "sums", "brief", "none"]

NULL_DOUBLE = float("nan")  # a null among doubles
NULL_TEXT = -1

Block: TypeAlias = NDArray[Any] | Sequence[int] | float  # of one column; a number is for all rows
Columns: TypeAlias = NDArray[np.void] | Mapping[str, NDArray[Any]]

# Below this a loop is faster than a numpy block.
_MANY = 10
# From here on a block's columns are worth keeping apart.
_LARGE = 512

_PACKED = {
    pa.int64(): ("q", "<i8"),
    pa.float64(): ("d", "<f8"),
    pa.bool_(): ("?", "?"),
    pa.string(): ("i", "<i4"),
}


@overload
def is_sampled(publication: int, one_in: int) -> bool: ...
@overload
def is_sampled(publication: NDArray[np.int64], one_in: int) -> NDArray[np.bool_]: ...
def is_sampled(publication: int | NDArray[np.int64], one_in: int) -> bool | NDArray[np.bool_]:
    """Does the level "sampled" keep this publication?

    Fibonacci hashing: id * 0x9E3779B97F4A7C15 mod 2**64 < 2**64 / one_in, compared without a
    fraction. Works on one identifier or on a column of them.
    """
    factor, bound = 0x9E3779B97F4A7C15, (2**64 - 1) // one_in
    if isinstance(publication, np.ndarray):
        hashed: NDArray[np.uint64] = publication.astype(np.uint64) * np.uint64(factor)
        return hashed <= np.uint64(bound)
    return publication * factor % 2**64 <= bound


class _Texts(dict[str | None, int]):
    """A number for each text, in the order of their first use."""

    def __missing__(self, text: str | None) -> int:
        if text is None:
            return NULL_TEXT
        number = self[text] = len(self)
        return number


class _Rows:
    """One table's rows since the last flush, and the texts that they refer to.

    Few rows at a time are packed; many that come as columns stay columns.
    """

    __slots__ = ("blocks", "dtype", "pack", "packed", "schema", "texts")

    def __init__(self, name: str) -> None:
        self.schema = TABLES[name]
        self.pack = Struct("<" + "".join(_PACKED[field.type][0] for field in self.schema)).pack
        self.dtype = np.dtype([(field.name, _PACKED[field.type][1]) for field in self.schema])
        self.packed = bytearray()
        self.blocks: list[tuple[int, dict[str, Block]]] = []
        self.texts = {field.name: _Texts() for field in self.schema if field.type == pa.string()}

    def __len__(self) -> int:
        return len(self.packed) // self.dtype.itemsize + sum(rows for rows, _ in self.blocks)

    def add(self, rows: int, **block: Block) -> None:
        if rows >= _LARGE:
            self.blocks.append((rows, block))
            return
        packed = np.empty(rows, self.dtype)
        for name, values in block.items():
            packed[name] = values
        self.packed += packed.tobytes()

    def repeat(self, row: bytes, rows: int, **varied: Block) -> None:
        """One packed row so many times, but for these columns."""
        packed = bytearray(row * rows)
        block = np.frombuffer(packed, self.dtype)
        for name, values in varied.items():
            block[name] = values
        self.packed += packed

    def take(self) -> NDArray[np.void]:
        packed, self.packed = self.packed, bytearray()
        return np.frombuffer(packed, self.dtype)

    def take_blocks(self) -> list[Columns]:
        blocks, self.blocks = self.blocks, []
        typed = self.dtype
        return [
            {name: np.broadcast_to(np.asarray(c, typed[name]), rows) for name, c in block.items()}
            for rows, block in blocks
        ]

    def table(self, pieces: Sequence[Columns]) -> pa.Table:
        """All of them, one after the other; what is without gaps already is not copied."""
        texts = {
            name: text_column([text for text in numbers if text is not None])  # None has no number
            for name, numbers in self.texts.items()
        }
        columns = (
            [_column(f, np.ascontiguousarray(rows[f.name]), texts.get(f.name)) for f in self.schema]
            for rows in pieces
        )
        return pa.concat_tables(pa.Table.from_arrays(c, schema=self.schema) for c in columns)


def _column(field: pa.Field, values: NDArray[np.generic], texts: pa.Array | None) -> pa.Array:
    if texts is not None:
        numbers = number_column(values, values == NULL_TEXT)
        return pa.DictionaryArray.from_arrays(numbers, texts).dictionary_decode()
    if not field.nullable:
        return number_column(values)
    missing = np.isnan(values) if field.type == pa.float64() else values == NULL_INTEGER
    return number_column(values, missing)


class Recorder:
    """Keeps what a host sees, and hands it to a sink in large pieces.

    Levels: "all"; "sampled" keeps the publications that `is_sampled` names, with their deliveries
    and the messages that carry them, and every row that belongs to no publication; "sums" adds
    messages up per second, sender, receiver, kind and fate; "brief" adds up all messages as "sums"
    does, and keeps publications and deliveries as "sampled" does; "none" keeps nothing.
    """

    def __init__(
        self, sink: TraceSink, level: Level = "all", *, one_in: int = 16, limit: int = 400_000
    ) -> None:
        if level not in get_args(Level):
            raise ValueError(
                f"a recording level is one of {', '.join(get_args(Level))}, not {level!r}"
            )
        if one_in < 1:
            raise ValueError(f"one in {one_in} publications cannot be kept")
        self.counts = dict.fromkeys(TABLES, 0)  # rows that the sink has taken
        self._sink = sink
        self._level = level
        self._silent = level == "none"
        self._one_in = one_in
        self._limit = limit
        self._room = limit
        self._interest_at: Time = -1
        self._rows = {name: _Rows(name) for name in TABLES}
        # The hot path's own ways to its table.
        self._messages = self._rows["messages"]
        self._deliveries = self._rows["deliveries"]
        self._kinds = self._messages.texts["kind"]

    # What a host sees.

    def interest(self, t: Time, subscription: Subscription) -> None:
        """From `t` on, this subscription is in force as it is at `t`.

        Of a path, the row is the leg under way: call again when a further leg begins. A second row
        of one subscription at the same instant replaces the first.
        """
        if self._silent:
            return
        self._make_room(t, 1)
        self._interest_at = t
        region, condition = subscription.region, subscription.filter
        until, formula, since = NULL_INTEGER, None, NULL_INTEGER
        velocity = growth = STILL
        if condition is not None and predicates.parse(condition.text).evolves:
            since = condition.since
        if isinstance(region, Formula):
            assert since in (NULL_INTEGER, region.since), "a formula and its filter share one clock"
            shape, formula, since = EVERYWHERE, region.text, region.since
        else:
            leg = region.leg(t) if isinstance(region, Path) else region
            assert leg.since <= t, f"a region of {leg.since} is recorded at {t}"
            shape = leg.shape if leg.since == t else leg.at(t)
            if leg.moves and t < leg.until:
                velocity, growth = leg.velocity, leg.growth
                until = NULL_INTEGER if leg.duration is None else leg.until
        rows = self._rows["interests"]
        texts = rows.texts
        rows.packed += rows.pack(
            t, subscription.node, subscription.id, texts["shape"][SHAPES[shape.kind]],
            shape.x, shape.y, shape.z, shape.rx, shape.ry, shape.rz, *velocity, *growth,
            until, texts["formula"][formula], since, texts["channel"][subscription.channel],
            texts["filter"][condition.text if condition else None], subscription.echo, False,
            texts["outline"][_outline_text(shape)],
        )  # fmt: skip

    def ended(self, t: Time, node: NodeId, subscription: SubscriptionId) -> None:
        """From `t` on, nobody listens here. The row repeats nothing of what was."""
        if self._silent:
            return
        self._make_room(t, 1)
        self._interest_at = t
        rows = self._rows["interests"]
        texts = rows.texts
        rows.packed += rows.pack(
            t, node, subscription, texts["shape"][SHAPES[0]], *(0.0,) * 12,
            NULL_INTEGER, NULL_TEXT, NULL_INTEGER, texts["channel"][""], NULL_TEXT, False, True,
            NULL_TEXT,
        )  # fmt: skip

    def published(self, publication: Publication) -> None:
        if self._silent:
            return
        self._make_room(publication.t, 1)
        rows = self._rows["publications"]
        texts, shape = rows.texts, publication.shape
        rows.packed += rows.pack(
            publication.t, publication.node, publication.id, texts["shape"][SHAPES[shape.kind]],
            shape.x, shape.y, shape.z, shape.rx, shape.ry, shape.rz,
            texts["channel"][publication.channel],
            texts["attributes"][_as_json(publication.attributes)], len(publication.payload),
            texts["outline"][_outline_text(shape)],
        )  # fmt: skip

    def published_many(
        self,
        publications: Batch,
        numbers: NDArray[np.int64],
        attributes: Sequence[Mapping[str, Value]] | None,
        size: NDArray[np.int64],
    ) -> None:
        """The rows of a `published` for each of a batch made at one moment, under these numbers.

        What a batch does not say of them stands beside it: attributes, if any has some, and sizes.
        """
        if self._silent:
            return
        self._make_room(int(publications.t[0]), len(publications))
        rows = self._rows["publications"]
        texts, channels = rows.texts, publications.channel
        axes = {name: publications.centre[:, axis] for axis, name in enumerate("xyz")}
        axes |= {f"r{name}": publications.extent[:, axis] for axis, name in enumerate("xyz")}
        rows.add(
            len(publications),
            t=publications.t,
            node=publications.node,
            publication=numbers,
            shape=np.array([texts["shape"][name] for name in SHAPES])[publications.kind],
            channel=[texts["channel"][channel] for channel in channels or ("",)],
            attributes=[texts["attributes"][_as_json(some)] for some in attributes or ({},)],
            bytes=size,
            outline=[
                texts["outline"][None if one is None else outline_text(one)]
                for one in publications.outlines or (None,)
            ],
            **axes,
        )

    def delivered(
        self,
        t: Time,
        node: NodeId,
        publication: PublicationId,
        subscriptions: Sequence[SubscriptionId],
        hops: int,
    ) -> None:
        """The application was handed this, once for each of these subscriptions."""
        if self._silent:
            return
        self._make_room(t, len(subscriptions))
        rows = self._deliveries
        for subscription in subscriptions:
            rows.packed += rows.pack(t, node, publication, subscription, hops)

    def delivered_many(
        self,
        t: Time,
        node: NDArray[np.int64],
        publication: NDArray[np.int64] | PublicationId,
        subscription: NDArray[np.int64],
        hops: int,
    ) -> None:
        """The rows of a `delivered` for each of these. The columns are kept: leave them alone."""
        if self._silent:
            return
        rows, count = self._deliveries, len(node)
        self._make_room(t, count)
        varied = {"node": node, "subscription": subscription}
        if not isinstance(publication, int) or count >= _LARGE:
            rows.add(count, t=t, publication=publication, hops=hops, **varied)
        elif count < _MANY:
            for one, name in zip(node.tolist(), subscription.tolist(), strict=True):
                rows.packed += rows.pack(t, one, publication, name, hops)
        else:
            rows.repeat(rows.pack(t, 0, publication, 0, hops), count, **varied)

    def sent(
        self,
        t: Time,
        node: NodeId,
        to: NodeId,
        kind: str,
        size: int,
        publication: PublicationId | None,
        arrived: Time | None,
        lost: bool,
    ) -> None:
        if self._silent:
            return
        if self._room < 1:  # `_make_room` written out: a simulator calls this a million times
            self._flush_unless_at(t)
        self._room -= 1
        rows = self._messages
        rows.packed += rows.pack(
            t, node, to, self._kinds[kind], size,
            NULL_INTEGER if publication is None else publication,
            NULL_INTEGER if arrived is None else arrived, lost, 1,
        )  # fmt: skip

    def sent_many(
        self,
        t: Time,
        node: NodeId,
        to: Sequence[NodeId] | NDArray[np.int64],
        kind: str,
        size: int,
        publication: PublicationId | None,
        arrived: Time | Sequence[Time] | NDArray[np.int64] | None,
    ) -> None:
        """The rows of a `sent` to each, none lost, as one block: one row repeated, then varied."""
        if self._silent:
            return
        rows, number = self._messages, self._kinds[kind]
        about = NULL_INTEGER if publication is None else publication
        when = NULL_INTEGER if arrived is None else arrived
        self._make_room(t, len(to))
        if not isinstance(when, int):
            row = rows.pack(t, node, 0, number, size, about, NULL_INTEGER, False, 1)
            rows.repeat(row, len(to), to=to, arrived=when)
        elif len(to) < _MANY:
            pack = rows.pack
            for target in to:
                rows.packed += pack(t, node, target, number, size, about, when, False, 1)
        else:
            rows.repeat(rows.pack(t, node, 0, number, size, about, when, False, 1), len(to), to=to)

    def position(self, t: Time, node: NodeId, x: float, y: float, z: float) -> None:
        if self._silent:
            return
        self._make_room(t, 1)
        rows = self._rows["positions"]
        rows.packed += rows.pack(t, node, x, y, z)

    def view(self, t: Time, node: NodeId, other: NodeId, x: float, y: float, z: float) -> None:
        if self._silent:
            return
        self._make_room(t, 1)
        rows = self._rows["views"]
        rows.packed += rows.pack(t, node, other, x, y, z)

    def view_many(
        self,
        t: Time,
        node: NDArray[np.int64],
        other: NDArray[np.int64],
        place: NDArray[np.float64],
    ) -> None:
        """The rows of a `view` for each of these. The columns are kept: leave them alone."""
        if self._silent:
            return
        self._make_room(t, len(node))
        axes = {name: place[:, axis] for axis, name in enumerate("xyz")}
        self._rows["views"].add(len(node), t=t, node=node, other=other, **axes)

    def note(
        self,
        t: Time,
        node: NodeId,
        fact: str,
        about: int | None = None,
        value: float | None = None,
    ) -> None:
        if self._silent:
            return
        self._make_room(t, 1)
        rows = self._rows["notes"]
        rows.packed += rows.pack(
            t, node, rows.texts["fact"][fact],
            NULL_INTEGER if about is None else about, NULL_DOUBLE if value is None else value,
        )  # fmt: skip

    def noted_many(
        self,
        t: Time,
        node: NDArray[np.int64],
        fact: str,
        about: NDArray[np.int64],
        value: NDArray[np.float64] | None = None,
    ) -> None:
        """The rows of a `note` for each of these, as one block."""
        if self._silent:
            return
        self._make_room(t, len(node))
        rows = self._rows["notes"]
        number = rows.texts["fact"][fact]
        rows.add(
            len(node),
            t=t,
            node=node,
            fact=number,
            about=about,
            value=NULL_DOUBLE if value is None else value,
        )

    # States and fences.

    def states_made(
        self, t: Time, node: Sequence[NodeId], publication: Sequence[PublicationId],
        ttl: Sequence[Time | None],
    ) -> None:  # fmt: skip
        """From `t` on, these publications are the states of these entities on their channels."""
        if self._silent:
            return
        self._make_room(t, len(node))
        rows = self._rows["states"]
        for one, number, lives in zip(node, publication, ttl, strict=True):
            rows.packed += rows.pack(
                t, one, number, NULL_INTEGER if lives is None else lives, False
            )

    def state_ended(self, t: Time, node: NodeId, publication: PublicationId) -> None:
        """From `t` on, this publication is no state: it was withdrawn, or its entity has left."""
        if self._silent:
            return
        self._make_room(t, 1)
        rows = self._rows["states"]
        rows.packed += rows.pack(t, node, publication, NULL_INTEGER, True)

    def fence_interest(
        self, t: Time, subscription: Subscription, fences: str, events: Sequence[str],
        dwell: Time | None, linger: Time,
    ) -> None:  # fmt: skip
        """From `t` on, this subscription is told of events at its area, or at the set `fences`."""
        if self._silent:
            return
        self._make_room(t, 1)
        rows, condition = self._rows["fence_interests"], subscription.filter
        texts = rows.texts
        rows.packed += rows.pack(
            t, subscription.node, subscription.id, texts["set"][fences or None],
            texts["events"][",".join(events)], NULL_INTEGER if dwell is None else dwell, linger,
            texts["channel"][subscription.channel],
            texts["filter"][condition.text if condition else None], subscription.echo, False,
        )  # fmt: skip

    def fence_interest_ended(self, t: Time, node: NodeId, subscription: SubscriptionId) -> None:
        """From `t` on, this subscription is not told of events any more."""
        if self._silent:
            return
        self._make_room(t, 1)
        rows = self._rows["fence_interests"]
        texts = rows.texts
        rows.packed += rows.pack(
            t, node, subscription, NULL_TEXT, texts["events"][""], NULL_INTEGER, 0,
            texts["channel"][""], NULL_TEXT, False, True,
        )  # fmt: skip

    def fence_area(self, t: Time, node: NodeId, subscription: int, region: Moving | Path) -> None:
        """From `t` on, this is the area of a subscription that is a fence: a row for each leg."""
        legs = region.legs if isinstance(region, Path) else (region,)
        for place, leg in enumerate(legs):
            if place + 1 == len(legs) or legs[place + 1].since > t:
                self._fence_area(t, node, subscription, None, None, leg, False)

    def set_fence(self, t: Time, name: str, fence: str, shape: Shape | None) -> None:
        """From `t` on, this fence of a set has this area; None: there is no such fence."""
        nowhere = Shape(ShapeKind.POINT, 0.0, 0.0)
        area = Moving(nowhere if shape is None else shape)
        self._fence_area(t, 0, NULL_INTEGER, name, fence, area, shape is None)

    def _fence_area(
        self, t: Time, node: NodeId, subscription: int, name: str | None, fence: str | None,
        leg: Moving, ended: bool,
    ) -> None:  # fmt: skip
        if self._silent:
            return
        self._make_room(t, 1)
        rows, shape = self._rows["fence_areas"], leg.shape
        texts = rows.texts
        rows.packed += rows.pack(
            t, node, subscription, texts["set"][name], texts["fence"][fence], leg.since,
            texts["shape"][SHAPES[shape.kind]], shape.x, shape.y, shape.z, shape.rx, shape.ry,
            shape.rz, *leg.velocity, *leg.growth,
            NULL_INTEGER if leg.duration is None else leg.until,
            texts["outline"][_outline_text(shape)], ended,
        )  # fmt: skip

    def fence_event(
        self, t: Time, node: NodeId, subscription: SubscriptionId, fence: str | None,
        entity: NodeId, kind: str, reason: str | None, event_t: Time, out_t: Time | None,
        place: tuple[float, float, float],
    ) -> None:  # fmt: skip
        """At `t` this subscription was told of an event that happened at `event_t`."""
        if self._silent:
            return
        self._make_room(t, 1)
        rows = self._rows["fence_events"]
        texts = rows.texts
        rows.packed += rows.pack(
            t, node, subscription, texts["fence"][fence], entity, texts["kind"][kind],
            texts["reason"][reason], event_t, NULL_INTEGER if out_t is None else out_t, *place,
        )  # fmt: skip

    # Direct messages.

    def direct_sent(
        self, t: Time, node: NodeId, message: PublicationId, to: NodeId, size: int
    ) -> None:
        """This entity has sent a message to that one, with a payload of so many bytes."""
        if self._silent:
            return
        self._make_room(t, 1)
        rows = self._rows["direct_messages"]
        rows.packed += rows.pack(t, node, message, to, size)

    def direct_delivered(self, t: Time, node: NodeId, message: PublicationId) -> None:
        """The application of this entity was given a direct message."""
        if self._silent:
            return
        self._make_room(t, 1)
        rows = self._rows["direct_deliveries"]
        rows.packed += rows.pack(t, node, message)

    # What becomes of it.

    def flush(self) -> None:
        """Hand all gathered rows to the sink, but for the sums of a second that may go on.

        A host that calls this itself does so between instants; see `_flush_unless_at`.
        """
        self._hand_over(closing=False)

    def close(self) -> None:
        """Hand over the last rows. The sink stays open: its owner says how the run ended."""
        self._hand_over(closing=True)

    def _make_room(self, t: Time, rows: int) -> None:
        if self._room < rows:
            self._flush_unless_at(t)
        self._room -= rows

    def _flush_unless_at(self, t: Time) -> None:
        # A flush in the middle of an instant could part two rows of one subscription, of which
        # only the last must be written. So it waits until time has gone on from an interest.
        if t != self._interest_at:
            self.flush()

    def _hand_over(self, closing: bool) -> None:
        tables = {}
        for name, rows in self._rows.items():
            taken = rows.take()
            if name == "interests":
                taken = last_of_each_instant(taken)
            if name == "messages" and self._level in ("sums", "brief"):
                taken = self._summed(taken, closing)
            pieces: list[Columns] = [taken, *rows.take_blocks()]
            if self._level in ("sampled", "brief") and "publication" in rows.schema.names:
                # Sums carry no publication, so all of them are kept.
                pieces = [self._sampled(piece) for piece in pieces]
            table = rows.table(pieces)
            if table.num_rows:
                tables[name] = table
            # Kinds are few, and sums that are held back refer to them; attributes may be many.
            if name != "messages":
                for texts in rows.texts.values():
                    texts.clear()
        self._room = self._limit
        if tables:
            self._sink.write(tables)
        for name, table in tables.items():
            self.counts[name] += table.num_rows

    def _sampled(self, rows: Columns) -> Columns:
        column: NDArray[np.int64] = rows["publication"]
        kept: NDArray[np.bool_] = (column == NULL_INTEGER) | is_sampled(column, self._one_in)
        if isinstance(rows, Mapping):
            return {name: values[kept] for name, values in rows.items()}
        chosen: NDArray[np.void] = rows[kept]
        return chosen

    def _summed(self, messages: NDArray[np.void], closing: bool) -> NDArray[np.void]:
        """One row for all alike in a second; those of the last second wait for the next flush."""
        sums = sum_messages(messages)
        if closing or not len(sums):
            return sums
        last: NDArray[np.bool_] = sums["t"] == sums["t"].max()
        self._messages.packed += sums[last].tobytes()
        return sums[~last]


def _outline_text(shape: Shape) -> str | None:
    return None if shape.outline is None else outline_text(shape.outline)


def _as_json(attributes: Mapping[str, Value]) -> str | None:
    return msgspec.json.encode(attributes, order="sorted").decode() if attributes else None
