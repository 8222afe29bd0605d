"""The story of a publication as lines of text."""

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from nearcast.model.subscription import PublicationId, SubscriptionId
from nearcast.pipeline.explain.causes import CAUSES, MissCause, milliseconds, seconds
from nearcast.pipeline.explain.stories import Hop, Misses, PairStory, PublicationStory

SHOWN_HOPS = 30  # messages that are listed
EXAMPLES = 3  # misses of each cause that are listed


def story_lines(story: PublicationStory) -> Iterator[str]:
    channel = f" on channel {story.channel!r}" if story.channel else ""
    yield (
        f"publication {story.publication}, made by node {story.node} at {seconds(story.t)}"
        f"{channel}: {story.place}"
    )
    if story.attributes:
        given = ", ".join(f"{name} = {value!r}" for name, value in story.attributes.items())
        yield f"  attributes: {given}"
    yield from _message_lines(story)
    yield from (f"  note  {note}" for note in story.notes)
    for pair in story.pairs:
        yield ""
        yield from _pair_lines(story, pair)
    if not story.pairs:
        yield "nobody wanted it, and nobody received it"
    for outcome, count in story.pairs_left_out.items():
        yield f"{count:,} more: {outcome}"


def _message_lines(story: PublicationStory) -> Iterator[str]:
    if not story.way_is_recorded:
        yield "  its way is not recorded: the trace has no messages, or only their sums"
        return
    if not story.messages:
        yield "  no message carried it"
    yield from (f"  {hop_line(story, hop)}" for hop in story.messages[:SHOWN_HOPS])
    more = len(story.messages) - SHOWN_HOPS + story.messages_left_out
    if more > 0:
        yield f"  … and {more:,} more messages"


def hop_line(story: PublicationStory, hop: Hop) -> str:
    sent = milliseconds(hop.t - story.t)
    after = "" if hop.arrived is None else f" after {milliseconds(hop.arrived - hop.t)}"
    fate = hop.failed or f"arrived{after}"
    return f"+{sent:>10}  {hop.kind}  {hop.node} → {hop.to}  {fate}"


def _pair_lines(story: PublicationStory, pair: PairStory) -> Iterator[str]:
    whose = "" if pair.node is None else f" of node {pair.node}"
    yield f"subscription {pair.subscription}{whose}: {pair.outcome}"
    for condition in pair.conditions:
        yield f"  {'yes' if condition.holds else 'NO ':3}  {condition.name}: {condition.detail}"
    yield from _interest_lines(story, pair)
    for place, delivery in enumerate(pair.deliveries):
        again = " again" if place else ""
        yield (
            f"  delivered{again} at {seconds(delivery.t)}, after {delivery.latency_ms:,.1f} ms and"
            f" {delivery.hops} {'hop' if delivery.hops == 1 else 'hops'}"
        )
    if pair.deliveries and pair.way:
        nodes = " → ".join(str(hop.node) for hop in pair.way)
        yield f"  way: {nodes} → {pair.way[-1].to}"
    if pair.cause is not None:
        yield f"  cause: {pair.cause} ({CAUSES[pair.cause]})"
        yield f"    {pair.evidence}"


def _interest_lines(story: PublicationStory, pair: PairStory) -> Iterator[str]:
    for moment, what in (
        (pair.interest_before, "the interest before it began"),
        (pair.interest_begins, "the interest in force began"),
        (pair.interest_ends, "it changed or ended"),
    ):
        if moment is not None:
            when = "before" if moment <= story.t else "after"
            away = milliseconds(abs(story.t - moment))
            yield f"       {what} at {seconds(moment)}, {away} {when}"


class MissExample(Struct, frozen=True):
    """A miss to ask about."""

    publication: PublicationId
    subscription: SubscriptionId


class CauseSummary(Struct, frozen=True):
    """How many misses have a cause, and some of them."""

    cause: str
    misses: int
    examples: list[MissExample]


def miss_summary(misses: Misses, causes: Sequence[MissCause]) -> list[CauseSummary]:
    """How many misses of which cause, the most frequent first."""
    examples: dict[str, list[MissExample]] = {}
    for publication, subscription, one in zip(
        misses.publications, misses.subscriptions, causes, strict=True
    ):
        some = examples.setdefault(one.cause, [])
        if len(some) < EXAMPLES:
            some.append(MissExample(publication, subscription))
    counts = Counter(one.cause for one in causes).most_common()
    return [CauseSummary(cause, count, examples[cause]) for cause, count in counts]


def miss_lines(misses: Misses, causes: Sequence[MissCause]) -> Iterator[str]:
    if not causes:
        yield "nothing was missed"
        return
    yield f"{len(causes):,} {'miss' if len(causes) == 1 else 'misses'}"
    for one in miss_summary(misses, causes):
        yield f"{one.misses:>9,}  {one.cause}: {CAUSES[one.cause]}"
        for pair in one.examples:
            yield f"           publication {pair.publication}, subscription {pair.subscription}"
