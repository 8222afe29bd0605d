"""The story of a publication: who wanted it, which way it took, who missed it and why."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pyarrow as pa
from msgspec import Struct

from nearcast.errors import TraceError
from nearcast.model.interests import InterestVersion
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, PublicationId, SubscriptionId, Value
from nearcast.pipeline.explain.causes import (
    MissCause,
    MissedPair,
    Way,
    find_cause,
    find_failure,
    find_way,
    seconds,
)
from nearcast.pipeline.explain.conditions import (
    WantedCondition,
    check_conditions,
    describe_shape,
)
from nearcast.pipeline.explain.evidence import WITHHELD, Evidence, RecordedMessage
from nearcast.pipeline.explain.selection import (
    TableGroup,
    count_rows,
    select_interests,
    select_rows,
    table_groups,
)
from nearcast.pipeline.truth.join import find_pairs, interest_spans, sort_by_time
from nearcast.space.motion import FOREVER, Time
from nearcast.storage import AnyPath, PathInput
from nearcast.trace.reader import folder, read

MOST_PAIRS = 20  # of a publication, if no subscription is named
MOST_HOPS = 200
MOST_NOTES = 20
SMALL_ROWS = 2_000_000  # of a trace in which misses are looked for without Spark


class Hop(Struct, frozen=True):
    """A message that carried the publication."""

    t: Time
    node: NodeId
    to: NodeId
    kind: str
    arrived: Time | None
    failed: str | None  # None: it did its work; else the cause


class PairDelivery(Struct, frozen=True):
    """The application of the subscriber received the publication."""

    t: Time
    latency_ms: float
    hops: int


class PairStory(Struct, frozen=True, kw_only=True):
    """What became of the publication for one subscription."""

    subscription: SubscriptionId
    node: NodeId | None
    outcome: str  # correct, missed, withheld, spurious or not wanted
    conditions: list[WantedCondition]
    interest_before: Time | None  # when the version before the one in force began
    interest_begins: Time | None
    interest_ends: Time | None
    deliveries: list[PairDelivery]
    way: list[Hop]
    cause: str | None = None
    evidence: str | None = None


class PublicationStory(Struct, frozen=True, kw_only=True):
    """A publication, its messages, and what became of it for each subscription."""

    publication: PublicationId
    t: Time
    node: NodeId
    channel: str
    place: str
    attributes: dict[str, Value]
    way_is_recorded: bool
    messages: list[Hop]
    messages_left_out: int
    notes: list[str]
    pairs: list[PairStory]
    pairs_left_out: dict[str, int]  # by outcome


def explain(
    trace: PathInput, publication: PublicationId, subscription: SubscriptionId | None = None
) -> PublicationStory:
    """The story of a publication, for one subscription or for those that wanted or received it."""
    root = folder(trace)
    row = find_publication(root, publication)
    deliveries = select_rows(root, "deliveries", {"publication": [publication]})
    due = None if subscription is not None else find_wanting(root, row)
    received = set(deliveries.column("subscription").to_pylist())
    left_out: dict[str, int] = {}
    if subscription is not None:
        chosen = [subscription]
    else:
        chosen, left_out = choose_pairs(due or set(), received)
    evidence = Evidence(root, row, chosen)
    if subscription is not None and subscription not in evidence.versions:
        check_subscription(root, subscription)
    return tell(evidence, publication, chosen, deliveries, left_out)


def find_publication(root: AnyPath, publication: PublicationId) -> pa.Table:
    groups = table_groups(root, "publications")
    row = select_rows(root, "publications", {"publication": [publication]}, groups=groups)
    if row.num_rows:
        return row.slice(0, 1)
    if not groups:
        raise TraceError(f"{root} has no publications")
    raise TraceError(
        f"{root} has no publication {publication}; it has {sum(one.rows for one in groups):,}"
        f"{numbered(groups, 'publication')}"
    )


def numbered(groups: Iterable[TableGroup], column: str) -> str:
    """From which to which number the files' statistics go, if they have some."""
    spans = [group.spans[column] for group in groups if column in group.spans]
    if not spans:
        return ""
    return f", numbered from {min(span[0] for span in spans)} to {max(span[1] for span in spans)}"


def check_subscription(root: AnyPath, subscription: SubscriptionId) -> None:
    """It may have no interest near the publication, but it must be in the trace."""
    groups = table_groups(root, "interests")
    rows = select_rows(root, "interests", {"subscription": [subscription]}, groups=groups)
    if not rows.num_rows:
        raise TraceError(
            f"{root} has no subscription {subscription}; it has {sum(g.rows for g in groups):,}"
            f" interests{numbered(groups, 'subscription')}"
        )


def find_wanting(root: AnyPath, publication: pa.Table) -> set[SubscriptionId]:
    """The subscriptions that should receive it, by the same join as everywhere."""
    t = publication.column("t")[0].as_py()
    spans = interest_spans(select_interests(root, None, t + 1, t, 1), t, t + 1)
    return {number for _, some in find_pairs(spans, publication) for number in some.tolist()}


def choose_pairs(
    due: Collection[SubscriptionId], received: Collection[SubscriptionId]
) -> tuple[list[SubscriptionId], dict[str, int]]:
    """Some of each outcome, misses first; and how many more there are."""
    outcomes = {
        "missed": sorted(set(due) - set(received)),
        "spurious": sorted(set(received) - set(due)),
        "correct": sorted(set(due) & set(received)),
    }
    chosen: list[SubscriptionId] = []
    left_out = {}
    for outcome, some in outcomes.items():
        taken = some[: MOST_PAIRS - len(chosen)]
        chosen += taken
        if len(some) > len(taken):
            left_out[outcome] = len(some) - len(taken)
    return chosen, left_out


def tell(
    evidence: Evidence,
    number: PublicationId,
    subscriptions: Iterable[SubscriptionId],
    deliveries: pa.Table,
    left_out: dict[str, int],
) -> PublicationStory:
    """The story, from what was read."""
    publication = evidence.publications[number]
    way = find_way(publication, evidence)
    messages = evidence.carriers.get(number, [])
    received: dict[SubscriptionId, list[PairDelivery]] = {}
    nodes: dict[SubscriptionId, NodeId] = {}
    for row in deliveries.sort_by("t").to_pylist():
        if row["publication"] == number:
            late = (row["t"] - publication.t) / 1000
            pair = PairDelivery(row["t"], late, row["hops"])
            received.setdefault(row["subscription"], []).append(pair)
            nodes[row["subscription"]] = row["node"]
    return PublicationStory(
        publication=number,
        t=publication.t,
        node=publication.node,
        channel=publication.channel,
        place=describe_shape(publication.shape),
        attributes=publication.attributes,
        way_is_recorded=evidence.way_is_recorded,
        messages=[as_hop(message, evidence) for message in messages[:MOST_HOPS]],
        messages_left_out=max(0, len(messages) - MOST_HOPS),
        notes=near_notes(publication, way, evidence),
        pairs=[
            tell_pair(evidence, publication, way, one, nodes.get(one), received.get(one, []))
            for one in subscriptions
        ],
        pairs_left_out=left_out,
    )


def as_hop(message: RecordedMessage, evidence: Evidence) -> Hop:
    failure = find_failure(message, evidence)
    return Hop(
        message.t, message.node, message.to, message.kind, message.arrived,
        None if failure is None else failure.cause,
    )  # fmt: skip


def near_notes(publication: Publication, way: Way, evidence: Evidence) -> list[str]:
    """Notes that concern the publication, the nodes that it reached, or all nodes then."""
    found = list(evidence.withheld.get(publication.id, ()))
    for node in way.reached:
        for note in (
            evidence.stop_before(node, publication.t), evidence.stop_after(node, publication.t)
        ):  # fmt: skip
            if note is not None:
                found.append(note)
    shown = [f"{seconds(note.t)}  node {note.node}: {note.fact}" for note in found]
    partition = evidence.partition_at(publication.t)
    if partition is not None:
        shown.append(f"{seconds(partition.begin)}  the network was partitioned")
    return sorted(set(shown))[:MOST_NOTES]


def tell_pair(
    evidence: Evidence,
    publication: Publication,
    way: Way,
    subscription: SubscriptionId,
    node: NodeId | None,
    deliveries: list[PairDelivery],
) -> PairStory:
    versions = evidence.versions.get(subscription, [])
    place = evidence.version_number(subscription, publication.t)
    in_force = versions[place].subscription if place >= 0 else None
    conditions = check_conditions(in_force, publication)
    due = all(condition.holds for condition in conditions)
    node = evidence.nodes.get(subscription, node)
    cause = None
    if due and not deliveries:
        assert node is not None
        cause = find_cause(MissedPair(publication, subscription, node, way), evidence)
    return PairStory(
        subscription=subscription,
        node=node,
        outcome=outcome_of(due, bool(deliveries), evidence.is_withheld(publication.id, node)),
        conditions=conditions,
        interest_before=_begins(versions, place - 1),
        interest_begins=_begins(versions, place),
        interest_ends=_begins(versions, place + 1),
        deliveries=deliveries,
        way=[as_hop(m, evidence) for m in way.hops_to(node)] if node is not None else [],
        cause=None if cause is None else cause.cause,
        evidence=None if cause is None else cause.evidence,
    )


def _begins(versions: Sequence[InterestVersion], place: int) -> Time | None:
    return versions[place].begins if 0 <= place < len(versions) else None


def outcome_of(due: bool, delivered: bool, withheld: bool) -> str:
    if due:
        return "correct" if delivered else "withheld" if withheld else "missed"
    return "spurious" if delivered else "not wanted"


# Many misses at once.


class Misses(Struct, frozen=True):
    """Missed pairs, as columns in the same order."""

    publications: list[PublicationId]
    subscriptions: list[SubscriptionId]


def judge_misses(
    root: AnyPath, misses: Misses, low: Time = 0, high: Time = FOREVER
) -> list[MissCause]:
    """The cause of each miss, by the same rules as `explain`; publications are from low to high."""
    evidence = read_evidence(root, misses, low, high)
    ways: dict[PublicationId, Way] = {}
    found = []
    for number, subscription in zip(misses.publications, misses.subscriptions, strict=True):
        publication = evidence.publications[number]
        if number not in ways:
            ways[number] = find_way(publication, evidence)
        pair = MissedPair(publication, subscription, evidence.nodes[subscription], ways[number])
        found.append(find_cause(pair, evidence))
    return found


def tell_misses(
    root: AnyPath, misses: Misses, low: Time = 0, high: Time = FOREVER
) -> list[PublicationStory]:
    """The story of each of these misses: of few."""
    evidence = read_evidence(root, misses, low, high)
    nothing = select_rows(root, "deliveries", {"publication": []}, groups=[])
    return [
        tell(evidence, number, [subscription], nothing, {})
        for number, subscription in zip(misses.publications, misses.subscriptions, strict=True)
    ]


def read_evidence(root: AnyPath, misses: Misses, low: Time, high: Time) -> Evidence:
    made = select_rows(root, "publications", {"publication": set(misses.publications)}, low, high)
    return Evidence(root, made, set(misses.subscriptions))


def find_misses(trace: PathInput) -> Misses:
    """All misses of a small trace, in order of time."""
    root = folder(trace)
    rows = count_rows(root)
    if rows > SMALL_ROWS:
        raise TraceError(
            f"{root} has {rows:,} rows; `nearcast analyse` finds the misses of a trace of this size"
        )
    publications = sort_by_time(read(root, "publications"))
    deliveries = read(root, "deliveries")
    received = set(
        zip(
            deliveries.column("publication").to_pylist(),
            deliveries.column("subscription").to_pylist(),
            strict=True,
        )
    )
    ids = publications.column("publication").to_numpy()
    spans = interest_spans(read(root, "interests"))
    due = [
        (int(place), int(number))
        for which, some in find_pairs(spans, publications)
        for place, number in zip(which, some, strict=True)
    ]
    withheld, node = (
        _withheld(root),
        dict(zip(*_columns(spans, "subscription", "node"), strict=True)),
    )
    missed = [
        (number, s)
        for number, s in ((int(ids[p]), s) for p, s in sorted(due))
        if (number, s) not in received and (number, node[s]) not in withheld
    ]
    return Misses([number for number, _ in missed], [s for _, s in missed])


def _withheld(root: AnyPath) -> set[tuple[PublicationId, float]]:
    """Publications, and the subscribers from whom they were withheld as these had asked."""
    rows = select_rows(root, "notes", {"fact": [WITHHELD]})
    return set(zip(*_columns(rows, "about", "value"), strict=True))


def _columns(rows: pa.Table, *names: str) -> list[list[Any]]:
    return [rows.column(name).to_pylist() for name in names]
