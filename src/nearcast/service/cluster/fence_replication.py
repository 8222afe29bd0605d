"""Sets of fences are the same on all nodes of a cluster.

A set may be changed at any node. Each feature has the version of its last change: the latest moment
wins, and of the same moment the higher node. A removed feature leaves a version without a text,
which is remembered for `REMEMBERED`; a set that is replaced has a version before which all its
features have ended, so that these need not be remembered.

A change is sent to all nodes in frames that fit into messages, one at a time, so that a large set
delays nobody. Whatever is lost is found by comparison, as for retained states: heartbeats have a
digest of all versions. A node that knows others sends digests of its `BUCKETS` of features to the
sender, which answers with what it has in those that differ.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec import Struct

from nearcast.client_protocol.messages import FeatureId
from nearcast.errors import Refused
from nearcast.model.subscription import NodeId
from nearcast.node import Outbox
from nearcast.service.cluster.messages import (
    BUCKETS,
    FenceBuckets,
    FenceRecord,
    FenceRecords,
    NodeHeartbeat,
)
from nearcast.space.motion import SECOND, Time

if TYPE_CHECKING:
    from nearcast.service.cluster.cluster_node import ClusterNode

FRAME_BYTES = 65_536  # of one message, about: reading its features takes some milliseconds
LONGEST_FEATURE = 400_000  # bytes: a message may have twice as many
REMEMBERED: Time = 86_400 * SECOND
ASK_EVERY: Time = 5 * SECOND
QUIET: Time = SECOND  # nobody asks for what is arriving
DIGEST_BITS = 48
MULTIPLIER = 0x9E3779B97F4A7C15
FeatureKey: TypeAlias = tuple[str, FeatureId | None]  # set and id


class FeatureVersion(NamedTuple):
    """When, and at which node, a feature was last changed; without a text it was removed."""

    t: Time
    node: int
    text: bytes | None
    key_hash: int

    @property
    def digest(self) -> int:
        mixed = (self.key_hash ^ self.t << 8 ^ self.node ^ (self.text is None)) * MULTIPLIER
        return mixed % 2**64 >> 64 - DIGEST_BITS


class SetChange(Struct):
    """What records of other nodes mean for one set."""

    texts: dict[FeatureId, bytes] = {}
    removed: list[FeatureId] = []


class ReplicatedFences:
    """The versions of all features that a node knows, with digests of them.

    The key of a feature is the name of its set and its id. The key with the id None has the version
    before which the set was replaced.
    """

    def __init__(self, node: int) -> None:
        self._node = node
        self._versions: dict[FeatureKey, FeatureVersion] = {}
        self._latest: Time = 0
        self.buckets = [0] * BUCKETS

    @property
    def digest(self) -> int:
        total = 0
        for bucket in self.buckets:
            total ^= bucket
        return total

    def change(
        self, now: Time, name: str, texts: dict[FeatureId, bytes],
        removed: Iterable[FeatureId], replaces: bool,
    ) -> list[FenceRecord]:  # fmt: skip
        """A client of this node has changed a set. What other nodes must know."""
        t = self._latest = max(now, self._latest + 1)
        records = [FenceRecord(name, which, t, self._node, text) for which, text in texts.items()]
        if replaces:
            # Last: until then, what it ends is replaced and not removed.
            records.append(FenceRecord(name, None, t, self._node))
        else:
            records += [FenceRecord(name, which, t, self._node) for which in removed]
        for record in records:
            self._take(record)
        if replaces:
            self._end_before(name)
        return records

    def merge(self, records: Iterable[FenceRecord]) -> dict[str, SetChange]:
        """Take over what is newer than what is known. What that changes, by set."""
        changes: dict[str, SetChange] = {}
        for record in records:
            self._latest = max(self._latest, record.t)
            if self._is_known(record):
                continue
            self._take(record)
            change = changes.setdefault(record.set_name, SetChange())
            if record.id is None:
                ended = self._end_before(record.set_name)
                change.removed += ended
                change.texts = {w: text for w, text in change.texts.items() if w not in ended}
            elif record.text is None:
                change.texts.pop(record.id, None)
                change.removed.append(record.id)
            else:
                change.texts[record.id] = record.text
        return changes

    def _is_known(self, record: FenceRecord) -> bool:
        version = record.t, record.node
        known = self._versions.get((record.set_name, record.id))
        floor = self._versions.get((record.set_name, None))
        if floor is not None and record.id is not None and version < floor[:2]:
            return True
        return known is not None and version <= known[:2]

    def _take(self, record: FenceRecord) -> None:
        key = record.set_name, record.id
        known = self._drop(key)
        key_hash = hash_of(key) if known is None else known.key_hash
        version = FeatureVersion(record.t, record.node, record.text, key_hash)
        self._versions[key] = version
        self.buckets[key_hash % BUCKETS] ^= version.digest

    def _drop(self, key: FeatureKey) -> FeatureVersion | None:
        version = self._versions.pop(key, None)
        if version is not None:
            self.buckets[version.key_hash % BUCKETS] ^= version.digest
        return version

    def _end_before(self, name: str) -> list[FeatureId]:
        """The set was replaced: what is older has ended. Which features were there until now."""
        floor = self._versions[name, None]
        old = [
            (which, version.text)
            for (one, which), version in self._versions.items()
            if one == name and which is not None and version[:2] < floor[:2]
        ]
        for which, _ in old:
            self._drop((name, which))
        return [which for which, text in old if text is not None and which is not None]

    def records_that_differ(self, buckets: Sequence[int]) -> list[FenceRecord]:
        """All that is known in the buckets whose digests are not these; replaced sets last."""
        differ = {k for k, (a, b) in enumerate(zip(self.buckets, buckets, strict=True)) if a != b}
        found = [
            FenceRecord(*key, version.t, version.node, version.text)
            for key, version in self._versions.items()
            if version.key_hash % BUCKETS in differ
        ]
        return sorted(found, key=lambda record: record.id is None)

    def forget(self, now: Time) -> None:
        """Forget features that were removed long ago."""
        before = now - REMEMBERED
        for key in [
            key
            for key, version in self._versions.items()
            if version.text is None and key[1] is not None and version.t < before
        ]:
            self._drop(key)


class FenceReplication:
    """Sends changes of sets to the other nodes, and finds out what differs."""

    def __init__(self, node: "ClusterNode", out: Outbox) -> None:
        self._node, self._out, self._realm = node, out, node.realm
        self._queues: dict[NodeId, deque[FenceRecords]] = {}  # not sent yet
        self._differs: dict[NodeId, None] = {}  # nodes whose last digest was different
        self._asked: dict[NodeId, Time] = {}
        self._heard: dict[NodeId, Time] = {}  # when a node last sent records
        self._forgot: Time = 0

    def tick(self, now: Time) -> None:
        """Send the next frame to each node."""
        changed, self._realm.changed_fences = self._realm.changed_fences, []
        if changed:
            frames = frames_of(changed)
            for node in self._node.nodes:
                self._queues.setdefault(node, deque()).extend(frames)
        for node, queue in list(self._queues.items()):
            if node in self._node.nodes:
                self._out.send(node, queue.popleft())
            if not queue or node not in self._node.nodes:
                del self._queues[node]
        if now - self._forgot > ASK_EVERY:
            self._forgot = now
            self._realm.replicated_fences.forget(now)

    def on_heartbeat(self, beat: NodeHeartbeat, sender: NodeId) -> None:
        """Asks when two digests in a row differ, and nothing is arriving."""
        now = self._realm.now
        if beat.fences == self._realm.replicated_fences.digest:
            self._differs.pop(sender, None)
        elif sender not in self._differs:
            self._differs[sender] = None
        elif (
            now - self._asked.get(sender, -ASK_EVERY) >= ASK_EVERY
            and now - self._heard.get(sender, -QUIET) >= QUIET
        ):
            self._asked[sender] = now
            self._out.send(sender, FenceBuckets(tuple(self._realm.replicated_fences.buckets)))

    def on_buckets(self, message: FenceBuckets, sender: NodeId) -> None:
        """Sends what differs, unless the sender is being sent something already."""
        if sender not in self._queues and sender in self._node.nodes:
            records = self._realm.replicated_fences.records_that_differ(message.digests)
            if records:
                self._queues[sender] = deque(frames_of(records))

    def on_records(self, message: FenceRecords, sender: NodeId) -> None:
        self._heard[sender] = self._realm.now
        self._realm.merge_fences(message.records)


def check_features(texts: Iterable[bytes]) -> None:
    """Refused if a feature fits into no message."""
    if any(len(text) > LONGEST_FEATURE for text in texts):
        raise Refused(f"in a cluster a feature has at most {LONGEST_FEATURE} bytes")


def frames_of(records: Iterable[FenceRecord]) -> list[FenceRecords]:
    """In parts that fit into one message each."""
    frames: list[list[FenceRecord]] = []
    room = 0
    for record in records:
        needed = 64 + len(record.set_name) + 2 * len(record.text or b"")
        if needed > room:
            frames.append([])
            room = FRAME_BYTES
        frames[-1].append(record)
        room -= needed
    return [FenceRecords(tuple(frame)) for frame in frames]


def hash_of(key: FeatureKey) -> int:
    """The same on all nodes; Python's own is not."""
    text = repr(key).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest())
