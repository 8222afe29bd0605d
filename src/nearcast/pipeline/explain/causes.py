"""Why a publication was missed: a short list of causes, in the order of their evidence.

Each rule looks at a missed pair and answers with a cause and the row of the trace that shows it, or
with nothing; the first answer counts. What the trace does not show is not guessed.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from msgspec import Struct

from nearcast.model.interests import InterestVersion
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import NodeId, Subscription, SubscriptionId
from nearcast.pipeline.explain.evidence import Evidence, RecordedMessage
from nearcast.space.motion import FOREVER, SECOND, Time

YOUNG: Time = SECOND  # an interest that is younger may be unknown to others
REPAIRED: Time = 10 * SECOND  # so long after a fault it may still be the cause

# Each cause, and what it means.
CAUSES = {
    "withheld": "a node withheld it: for a slow client, or for a full uplink",
    "lost": "a message that carried it, or that announced the interest, was lost",
    "partitioned": "the network was partitioned between the publisher and the subscriber",
    "disconnected": "the subscriber or the publisher had no connection at that time",
    "crashed": "a node on the way, or the subscriber's, was down",
    "ended": "the subscription ended before the publication could arrive",
    "not yet known": "the interest had just changed, and the change was not known in time",
    "outdated": "it was matched against an older interest: no change had been announced since",
    "overtaken": "the interest had changed again when the publication was matched",
    "not delivered": "it arrived at the subscriber's node, which did not deliver it",
    "not forwarded": "no message carried it toward the subscriber, though none was lost",
    "unknown": "the trace does not record the ways of publications",
}


class MissCause(Struct, frozen=True):
    """The most likely cause of a miss, and the sentence that shows it."""

    cause: str
    evidence: str


class Arrival(Struct, frozen=True):
    """When a publication first came to a node, and by which message."""

    t: Time
    message: RecordedMessage


class Failure(Struct, frozen=True):
    """A message that did not do its work: why, and a sentence."""

    message: RecordedMessage
    cause: str
    evidence: str


class Way(Struct, frozen=True):
    """Which nodes had a publication from when on, which received it, and which messages failed."""

    reached: dict[NodeId, Time]
    received: dict[NodeId, Arrival]
    arrived: list[RecordedMessage]
    failures: list[Failure]

    def hops_to(self, node: NodeId) -> list[RecordedMessage]:
        """The messages by which it came to the node, in order."""
        hops: list[RecordedMessage] = []
        while node in self.received and self.received[node].message not in hops:
            hops.append(self.received[node].message)
            node = hops[-1].node
            if self.reached[node] < self.received.get(node, self.received[hops[0].to]).t:
                break  # it had it before: the publisher
        return hops[::-1]


class MissedPair(Struct, frozen=True):
    """A publication, and a subscription that wanted it and did not receive it."""

    publication: Publication
    subscription: SubscriptionId
    node: NodeId
    way: Way


Rule: TypeAlias = Callable[[MissedPair, Evidence], MissCause | None]


def seconds(t: Time) -> str:
    return f"{t / 1e6:.6f} s"


def milliseconds(span: Time) -> str:
    return f"{span / 1000:,.1f} ms"


def describe(message: RecordedMessage) -> str:
    return f"{message.kind} from node {message.node} to node {message.to} at {seconds(message.t)}"


def find_way(publication: Publication, evidence: Evidence) -> Way:
    way = Way({publication.node: publication.t}, {}, [], [])
    for message in evidence.carriers.get(publication.id, ()):
        way.reached.setdefault(message.node, message.t)  # if nobody recorded how
        failure = find_failure(message, evidence)
        if failure is not None:
            way.failures.append(failure)
            continue
        way.arrived.append(message)
        came = message.t if message.arrived is None else message.arrived
        way.reached[message.to] = min(came, way.reached.get(message.to, came))
        if message.to not in way.received or came < way.received[message.to].t:
            way.received[message.to] = Arrival(came, message)
    return way


def find_failure(message: RecordedMessage, evidence: Evidence) -> Failure | None:
    if message.lost:
        if evidence.was_cut(message):
            return Failure(
                message, "partitioned", f"{describe(message)} was lost in a partitioned network"
            )
        return Failure(message, "lost", f"{describe(message)} was lost")
    if message.arrived is not None:
        stop = evidence.stop_before(message.to, message.arrived)
        if stop is not None:
            cause = "crashed" if stop.fact == "crashed" else "ended"
            return Failure(
                message, cause,
                f"{describe(message)} arrived at {seconds(message.arrived)},"
                f" but node {message.to} had {stop.fact} at {seconds(stop.t)}",
            )  # fmt: skip
    return None


def find_cause(pair: MissedPair, evidence: Evidence) -> MissCause:
    for rule in RULES:
        found = rule(pair, evidence)
        if found is not None:
            return found
    raise AssertionError("the last rule always answers")


# The rules, in order.


def _withheld(pair: MissedPair, evidence: Evidence) -> MissCause | None:
    notes = evidence.withheld.get(pair.publication.id, ())
    for note in notes:
        if pair.node in (note.node, note.value):
            return MissCause(
                "withheld", f"at {seconds(note.t)} it was withheld from node {pair.node}"
            )
    if pair.node not in pair.way.received:
        for note in notes:
            if note.node in pair.way.reached:
                return MissCause("withheld", f"node {note.node} withheld it at {seconds(note.t)}")
    return None


def _arrived(pair: MissedPair, evidence: Evidence) -> MissCause | None:
    """It came to the subscriber's node."""
    arrival = pair.way.received.get(pair.node)
    if arrival is None:
        return None
    end = _end_of(pair, evidence)
    if end is not None and end <= arrival.t:
        return MissCause(
            "ended", f"it arrived at {seconds(arrival.t)}; the subscription ended at {seconds(end)}"
        )
    for note in evidence.cut_off.get(pair.node, ()):
        if pair.publication.t - REPAIRED <= note.t <= arrival.t:
            return MissCause("disconnected", f"node {pair.node}: {note.fact} at {seconds(note.t)}")
    sender = arrival.message.node
    stop = evidence.stop_after(sender, pair.publication.t)
    if stop is not None and stop.t <= arrival.t:
        return MissCause(
            "crashed", f"node {sender}, which had sent it, had {stop.fact} at {seconds(stop.t)}"
        )
    return MissCause(
        "not delivered", f"it arrived at node {pair.node} at {seconds(arrival.t)}, and stayed there"
    )


def _failed_at_the_end(pair: MissedPair, evidence: Evidence) -> MissCause | None:  # noqa: ARG001
    """The message to the subscriber's node failed."""
    for failure in pair.way.failures:
        if failure.message.to == pair.node:
            return MissCause(failure.cause, failure.evidence)
    return None


def _old_knowledge(pair: MissedPair, evidence: Evidence, direct: bool) -> MissCause | None:
    """A node that had the publication should have forwarded it, but knew another interest.

    Who was informed when is seen in the messages that the subscriber sent at the very moments of
    its changes (`direct`), and in those that others sent on at once.
    """
    place = evidence.version_number(pair.subscription, pair.publication.t)
    found: MissCause | None = None
    for node, t in pair.way.reached.items():
        known = _known_version(pair, evidence, node, t, place, direct)
        if known is None:
            continue
        version, why = known
        if version is not None and wants(version, pair.publication, pair.publication.t):
            return None  # this one knew enough
        found = found or why
    return found


def _known_version(
    pair: MissedPair, evidence: Evidence, node: NodeId, t: Time, in_force: int, direct: bool
) -> tuple[Subscription | None, MissCause] | None:
    """Which version of the interest the node knew at `t`, and why no other; None if the subscriber
    informs other nodes."""
    why: MissCause | None = None
    versions = evidence.versions[pair.subscription]
    for place in range(len(versions) - 1, -1, -1):
        begins, subscription = versions[place]
        announced = [
            one
            for one in evidence.updates(pair.node, begins)
            if one.to == node and (one.node == pair.node or not direct)
        ]
        late = [one for one in announced if one.arrived is not None and one.arrived > t]
        failures = [one for one in (find_failure(m, evidence) for m in announced) if one]
        if announced and not late and not failures:
            newer = place > in_force
            return subscription, why or _known_at(pair, node, t, versions[place], newer)
        if announced and place <= in_force and why is None:
            why = _unannounced(node, t, begins, late, failures)
    return None if why is None else (None, why)


def _unannounced(
    node: NodeId, t: Time, begins: Time, late: list[RecordedMessage], failures: list[Failure]
) -> MissCause:
    """Why the node did not know of a version at `t`: one of several messages is enough."""
    if failures:
        first = failures[0]
        return MissCause(first.cause, f"it would have announced the interest: {first.evidence}")
    came = max(one.arrived or one.t for one in late)
    return MissCause(
        "not yet known",
        f"node {node} had the publication at {seconds(t)}, and learnt of the interest of"
        f" {seconds(begins)} {milliseconds(came - t)} later",
    )


def _known_at(
    pair: MissedPair, node: NodeId, t: Time, version: InterestVersion, newer: bool
) -> MissCause:
    """What it means that the node knew this version when the publication came, at `t`."""
    begins = seconds(version.begins)
    if newer and version.subscription is None:
        return MissCause(
            "ended",
            f"when node {node} had the publication, at {seconds(t)}, it already knew that the"
            f" subscription had ended at {begins}",
        )
    if newer:
        return MissCause(
            "overtaken",
            f"when node {node} had the publication, at {seconds(t)}, it already knew the interest"
            f" of {begins}",
        )
    return MissCause(
        "outdated",
        f"node {node} knew the interest of {begins}, and node {pair.node} announced no other to it",
    )


def _failed_before(pair: MissedPair, evidence: Evidence) -> MissCause | None:  # noqa: ARG001
    """A message to a node that would have forwarded it failed."""
    senders = {message.node for message in pair.way.arrived} | {
        failure.message.node for failure in pair.way.failures
    }
    for failure in pair.way.failures:
        lost = failure.message
        if lost.to in pair.way.reached:
            continue  # another copy came there
        alike = [m for m in pair.way.arrived if (m.node, m.kind) == (lost.node, lost.kind)]
        if not alike or any(message.to in senders for message in alike):
            return MissCause(failure.cause, failure.evidence)
    return None


def _gone(pair: MissedPair, evidence: Evidence) -> MissCause | None:
    """The subscription ended while the publication was on its way."""
    t = pair.publication.t
    latest = max((arrival.t for arrival in pair.way.received.values()), default=t + YOUNG)
    stop = evidence.stop_after(pair.node, t)
    if stop is not None and stop.t <= latest:
        cause = "crashed" if stop.fact == "crashed" else "ended"
        return MissCause(cause, f"node {pair.node} {stop.fact} at {seconds(stop.t)}")
    end = _end_of(pair, evidence)
    if end is not None and end <= latest:
        return MissCause("ended", f"the subscription ended at {seconds(end)}")
    stop = evidence.stop_after(pair.publication.node, t)
    if stop is not None and stop.t <= t + YOUNG and not pair.way.arrived:
        return MissCause(
            "crashed", f"node {stop.node}, the publisher, {stop.fact} at {seconds(stop.t)}"
        )
    return None


def _end_of(pair: MissedPair, evidence: Evidence) -> Time | None:
    """When the subscription ended, after the publication was made."""
    place = evidence.version_number(pair.subscription, pair.publication.t)
    for begins, subscription in evidence.versions[pair.subscription][place + 1 :]:
        if subscription is None:
            return begins
    return None


def _unrecorded(pair: MissedPair, evidence: Evidence) -> MissCause | None:  # noqa: ARG001
    if evidence.way_is_recorded:
        return None
    return MissCause("unknown", "this trace does not record which message carried what")


def _announcement_failed(pair: MissedPair, evidence: Evidence) -> MissCause | None:
    """Nothing that the subscriber sent when its interest changed arrived anywhere."""
    place = evidence.version_number(pair.subscription, pair.publication.t)
    begins = evidence.versions[pair.subscription][place].begins
    failures = [find_failure(one, evidence) for one in evidence.updates(pair.node, begins)]
    if not failures or any(failure is None for failure in failures):
        return None
    first = failures[0]
    assert first is not None
    return MissCause(first.cause, f"it would have announced the interest: {first.evidence}")


def _just_changed(pair: MissedPair, evidence: Evidence) -> MissCause | None:
    place = evidence.version_number(pair.subscription, pair.publication.t)
    versions, t = evidence.versions[pair.subscription], pair.publication.t
    age = t - versions[place].begins
    before = versions[place - 1].subscription if place else None
    if age >= YOUNG or (before is not None and wants(before, pair.publication, t)):
        return None
    what = "began" if before is None else "changed"
    return MissCause(
        "not yet known", f"the interest {what} only {milliseconds(age)} before the publication"
    )


def _cut(pair: MissedPair, evidence: Evidence) -> MissCause | None:
    """The network was partitioned, or had been: overlays take a while to repair themselves."""
    t = pair.publication.t
    partition = evidence.partition_at(t)
    if partition is not None and (partition.end < FOREVER or t <= partition.begin + REPAIRED):
        since = seconds(partition.begin)
        return MissCause("partitioned", f"the network was partitioned since {since}")
    partition = evidence.partition_before(t, REPAIRED)
    if partition is not None:
        return MissCause(
            "partitioned",
            f"the network had been partitioned until {milliseconds(t - partition.end)} before",
        )
    return None


def _other_faults(pair: MissedPair, evidence: Evidence) -> MissCause | None:
    """A fault of the cluster at that time."""
    t = pair.publication.t
    near = range(t - REPAIRED, t + REPAIRED)
    for client in (pair.node, pair.publication.node):
        for note in evidence.cut_off.get(client, ()):
            if note.t in near:
                return MissCause("disconnected", f"node {client}: {note.fact} at {seconds(note.t)}")
    for note in evidence.faults:
        if note.t in near and note.fact != "slowed":
            cause = "crashed" if note.fact == "halted" else "partitioned"
            return MissCause(cause, f"node {note.about}: {note.fact} at {seconds(note.t)}")
    return None


def _not_forwarded(pair: MissedPair, evidence: Evidence) -> MissCause | None:  # noqa: ARG001
    count = len(pair.way.reached) - 1
    return MissCause(
        "not forwarded",
        f"it reached {count} other {'node' if count == 1 else 'nodes'}, and no message went to node"
        f" {pair.node}",
    )


RULES: tuple[Rule, ...] = (
    _withheld,
    _arrived,
    _failed_at_the_end,
    partial(_old_knowledge, direct=True),
    _failed_before,
    partial(_old_knowledge, direct=False),
    _gone,
    _unrecorded,
    _announcement_failed,
    _just_changed,
    _cut,
    _other_faults,
    _not_forwarded,
)
