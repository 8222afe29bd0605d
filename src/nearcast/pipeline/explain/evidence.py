"""What a trace says about some publications and subscriptions, ready to be asked.

All rows are read once for many pairs. No Spark in here.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from nearcast.model.interests import InterestVersion
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, PublicationId, SubscriptionId
from nearcast.pipeline.explain.selection import has_ways, select_interests, select_rows
from nearcast.pipeline.truth.join import add_ends
from nearcast.space.motion import FOREVER, SECOND, Time
from nearcast.storage import AnyPath
from nearcast.trace.row_values import publication_of, subscription_of

HORIZON: Time = 60 * SECOND  # messages that are sent later after a publication are not considered
LOOKBACK: Time = 10 * SECOND  # earlier versions of an interest are considered for so long
WITHHELD = "withheld"
STOPS, STARTS = ("crashed", "left"), ("joined",)
CUT, HEALED = "partitioned", "healed"
CUT_OFF = ("disconnected", "isolated", "stopped reading")  # about a client
FAULTS = ("halted", "cut off", "link broken", "slowed")  # about a node
FACTS = (WITHHELD, *STOPS, *STARTS, CUT, HEALED, *CUT_OFF, *FAULTS)

MOST_LEVELS = 6  # messages by which an interest is announced from node to node
MOST_MOMENTS = 200_000  # at which such messages are looked for

Link: TypeAlias = frozenset[NodeId]
Moment: TypeAlias = tuple[NodeId, Time]


class RecordedMessage(Struct, frozen=True):
    """A message, as its sender recorded it."""

    t: Time
    node: NodeId
    to: NodeId
    kind: str
    bytes: int
    arrived: Time | None
    lost: bool


class RecordedNote(Struct, frozen=True):
    """A note of the trace."""

    t: Time
    node: NodeId
    fact: str
    about: int | None
    value: float | None


class Partition(NamedTuple):
    """From `begin` to `end` some nodes could not reach others."""

    begin: Time
    end: Time


class Evidence:
    """The rows that concern some publications (rows of their table) and subscriptions."""

    def __init__(
        self, root: AnyPath, publications: pa.Table, subscriptions: Collection[SubscriptionId]
    ) -> None:
        made = [publication_of(row) for row in publications.to_pylist()]
        self.publications: dict[PublicationId, Publication] = {one.id: one for one in made}
        self.way_is_recorded = has_ways(root)
        self._root = root
        self._low = min((one.t for one in made), default=0)
        self._high = max((one.t for one in made), default=0)
        self.versions: dict[SubscriptionId, list[InterestVersion]] = {}
        self.nodes: dict[SubscriptionId, NodeId] = {}
        self._read_interests(subscriptions)
        self.carriers = self._read_carriers()
        self._updates = self._read_updates()
        self._read_notes(made)
        self._contacts = self._read_contacts()

    # Reading.

    def _read_interests(self, subscriptions: Collection[SubscriptionId]) -> None:
        rows = select_interests(
            self._root, subscriptions, max(0, self._low - LOOKBACK), self._high + HORIZON, 2
        )
        for row in add_ends(rows).to_pylist() if rows.num_rows else ():
            version = InterestVersion(row["t"], subscription_of(row))
            self.versions.setdefault(row["subscription"], []).append(version)
            self.nodes[row["subscription"]] = row["node"]

    def _read_carriers(self) -> dict[PublicationId, list[RecordedMessage]]:
        found: dict[PublicationId, list[RecordedMessage]] = defaultdict(list)
        if self.way_is_recorded:
            wanted = {"publication": self.publications}
            rows = select_rows(self._root, "messages", wanted, self._low, self._high + HORIZON)
            for row, message in zip(
                rows.column("publication").to_pylist(), _messages(rows), strict=True
            ):
                if message.t - self.publications[row].t <= HORIZON:
                    found[row].append(message)
        for messages in found.values():
            messages.sort(key=_in_order)
        return found

    def _read_updates(self) -> dict[Moment, list[RecordedMessage]]:
        """What subscribers sent at the moments at which their interests changed, and what those
        who received it sent on at once."""
        found: dict[Moment, list[RecordedMessage]] = {
            (self.nodes[number], version.begins): []
            for number, versions in self.versions.items()
            for version in versions
        }
        origins = {moment: {moment} for moment in found}  # whose change is announced then
        passed: dict[Moment, set[Moment]] = {}
        for _ in range(MOST_LEVELS if self.way_is_recorded else 0):
            later: dict[Moment, set[Moment]] = {}
            for message in self._sent_at(origins):
                announces = origins.get((message.node, message.t))
                for origin in announces or ():
                    found[origin].append(message)
                if announces and message.arrived is not None:
                    later.setdefault((message.to, message.arrived), set()).update(announces)
            for moment, some in origins.items():
                passed.setdefault(moment, set()).update(some)
            origins = {
                moment: fresh
                for moment, some in later.items()
                if (fresh := some - passed.get(moment, set()))
            }
            if not origins or len(origins) > MOST_MOMENTS:
                break
        return found

    def _sent_at(self, moments: Collection[Moment]) -> Iterable[RecordedMessage]:
        """What nodes sent at these moments, without publications; and some more."""
        if not moments:
            return ()
        nodes, times = ({moment[i] for moment in moments} for i in (0, 1))
        rows = select_rows(
            self._root, "messages", {"node": nodes, "t": times}, min(times), max(times)
        )
        return _messages(rows.filter(pc.is_null(rows.column("publication"))))

    def _read_notes(self, made: Iterable[Publication]) -> None:
        messages = [*_all(self.carriers.values()), *_all(self._updates.values())]
        nodes = {one.to for one in messages} | {one.node for one in messages}
        nodes |= {one.node for one in made} | set(self.nodes.values())
        rows = select_rows(self._root, "notes", {"fact": FACTS}, 0, self._high + HORIZON)
        self.withheld: dict[PublicationId, list[RecordedNote]] = defaultdict(list)
        self.cut_off: dict[int, list[RecordedNote]] = defaultdict(list)  # by client
        self.faults: list[RecordedNote] = []  # of nodes of a cluster
        self._stays: dict[NodeId, list[RecordedNote]] = defaultdict(list)
        cuts: list[RecordedNote] = []
        for row in sorted(rows.to_pylist(), key=lambda row: (row["t"], row["fact"])):
            note = RecordedNote(**row)
            if note.fact == WITHHELD and note.about in self.publications:
                self.withheld[note.about].append(note)
            elif note.fact in (*STOPS, *STARTS) and note.node in nodes:
                self._stays[note.node].append(note)
            elif note.fact in (CUT, HEALED):
                cuts.append(note)
            elif note.fact in CUT_OFF and note.about is not None:
                self.cut_off[note.about].append(note)
            elif note.fact in FAULTS:
                self.faults.append(note)
        self.partitions = [
            Partition(one.t, next((later.t for later in cuts[place + 1 :]), FOREVER))
            for place, one in enumerate(cuts)
            if one.fact == CUT
        ]

    def is_withheld(self, publication: PublicationId, subscriber: NodeId | None) -> bool:
        """Was it withheld from this subscriber, because that one had asked for it?"""
        notes = self.withheld.get(publication, ())
        return subscriber is not None and any(note.value == subscriber for note in notes)

    def _read_contacts(self) -> dict[Link, list[Time]]:
        """When messages were sent that did arrive, between nodes of which some lost a message
        while the network was partitioned."""
        lost = [
            one
            for one in (*_all(self.carriers.values()), *_all(self._updates.values()))
            if one.lost and self.partition_at(one.t) is not None
        ]
        links = {frozenset((one.node, one.to)) for one in lost}
        ends = set().union(*links) if links else set()
        found: dict[Link, list[Time]] = {link: [] for link in links}
        for partition in self.partitions if links else ():
            rows = select_rows(
                self._root, "messages", {"node": ends, "to": ends}, partition.begin, partition.end
            )
            arrived = rows.filter(pc.invert(rows.column("lost")))
            columns = (arrived.column(name).to_pylist() for name in ("t", "node", "to"))
            for t, node, to in zip(*columns, strict=True):
                if (link := frozenset((node, to))) in found:
                    found[link].append(t)
        return {link: sorted(times) for link, times in found.items()}

    # Questions.

    def partition_before(self, t: Time, most: Time) -> Partition | None:
        """The last one that has ended, at most so long before `t`."""
        ended = [one for one in self.partitions if one.end <= t <= one.end + most]
        return ended[-1] if ended else None

    def partition_at(self, t: Time) -> Partition | None:
        return next((one for one in self.partitions if one.begin <= t < one.end), None)

    def was_cut(self, message: RecordedMessage) -> bool:
        """Was it lost because the network was partitioned? Within a half, some messages arrive;
        between the halves none does."""
        partition = self.partition_at(message.t)
        if partition is None:
            return False
        times = self._contacts.get(frozenset((message.node, message.to)), [])
        place = bisect_left(times, partition.begin)
        return place == len(times) or times[place] >= partition.end

    def stop_before(self, node: NodeId, t: Time) -> RecordedNote | None:
        """The note by which the node is down at `t`, if it is."""
        before = [note for note in self._stays.get(node, ()) if note.t <= t]
        return before[-1] if before and before[-1].fact in STOPS else None

    def stop_after(self, node: NodeId, t: Time) -> RecordedNote | None:
        """The next note after `t` by which the node is down."""
        later = (note for note in self._stays.get(node, ()) if note.t > t and note.fact in STOPS)
        return next(later, None)

    def updates(self, node: NodeId, t: Time) -> Sequence[RecordedMessage]:
        """The messages that announced the node's change of interest at `t`."""
        return self._updates.get((node, t), ())

    def version_number(self, subscription: SubscriptionId, t: Time) -> int:
        """The place of the version in force at `t`; -1 if there is none."""
        begins = [version.begins for version in self.versions.get(subscription, ())]
        return bisect_right(begins, t) - 1


def _messages(rows: pa.Table) -> Iterable[RecordedMessage]:
    names = RecordedMessage.__struct_fields__
    columns = (rows.column(name).to_pylist() for name in names)
    return (RecordedMessage(*values) for values in zip(*columns, strict=True))


def _in_order(message: RecordedMessage) -> tuple[Time, Time, NodeId, NodeId]:
    return (
        message.t,
        message.t if message.arrived is None else message.arrived,
        message.node,
        message.to,
    )


def _all(groups: Iterable[list[RecordedMessage]]) -> Iterable[RecordedMessage]:
    return (one for group in groups for one in group)
