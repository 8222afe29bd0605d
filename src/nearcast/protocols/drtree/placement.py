"""Owners chosen by latency: "the impact of heterogeneity and nodes placement will be investigated
in future works" ([DRtree] VI.A).

What comes to a node of the tree goes from one child to its owner and on to other children. So the
best owner is the child with the least mean round trip to its brothers. Round trips are measured:
a ping carries the sender's own time and comes back with it, so clocks need not agree. Everybody
measures its brothers and the children of its nodes, and tells its parent the mean.

Leaves stand where they stand, so the owners of level 1 follow from them alone, those of level 2
from the owners of level 1, and so on. That, and that an heir must be clearly better, is why owners
come to rest.
"""

from collections.abc import Iterable, Mapping

from nearcast.protocols.drtree.member import ChildRecord, Member
from nearcast.protocols.drtree.messages import Address, Ping, Pong
from nearcast.space.motion import Time

ENOUGH_SAMPLES = 8  # round trips to somebody, one after the other, before they count
RECENT_SAMPLES = 16  # so many count about equally; older ones fade
NO_SAMPLES: tuple[int, Time] = 0, 0
BETTER = 0.9  # of the owner's mean: an heir must be below, or noise would move owners


def mean_round_trip(member: Member, others: Iterable[Address]) -> Time | None:
    """The mean round trip from here to all of these; None where some are not known well enough."""
    found = [member.round_trips.get(address, NO_SAMPLES) for address in others]
    if not found or any(count < ENOUGH_SAMPLES for count, _ in found):
        return None
    return sum(mean for _, mean in found) // len(found)


def measure_round_trips(member: Member) -> None:
    """Ping whom I do not know well enough, and one of the others, since networks change."""
    near = dict.fromkeys(member.brothers)
    for level in range(1, member.top + 1):
        near.update(dict.fromkeys(member.other_children(level)))
    trips = member.round_trips = {a: member.round_trips.get(a, NO_SAMPLES) for a in near}
    unknown = [a for a, (count, _) in trips.items() if count < ENOUGH_SAMPLES]
    if unknown:
        member.mark_changed()
    elif near:
        unknown = [member.peer.rng.choice(list(near))]
    member.peer.send_all(unknown, Ping(member.address, member.peer.now))


def on_ping(member: Member, ping: Ping) -> None:
    member.peer.send(ping.by, Pong(member.address, ping.sent))


def on_pong(member: Member, pong: Pong) -> None:
    took = member.peer.now - pong.sent
    if took < 0 or pong.by not in member.round_trips:
        return  # not requested
    count, mean = member.round_trips[pong.by]
    count = min(count + 1, RECENT_SAMPLES)
    member.round_trips[pong.by] = count, mean + (took - mean) // count
    if count < ENOUGH_SAMPLES:
        member.peer.send(pong.by, Ping(member.address, member.peer.now))


def best_placed(children: Mapping[Address, ChildRecord], besides: Address) -> Address | None:
    """The child with the least reported mean round trip; of equals, the first address."""
    reported = [
        (child.brother_latency, a)
        for a, child in children.items()
        if child.brother_latency is not None
    ]
    return min(
        [(brother_latency, a) for brother_latency, a in reported if a != besides], default=(0, None)
    )[1]


def better_placed(member: Member, level: int) -> Address | None:
    """Who should own my node instead of me, if anybody."""
    children, others = member.levels[level].children, member.other_children(level)
    mine = mean_round_trip(member, others)
    if others and (mine is None or any(children[a].brother_latency is None for a in others)):
        member.mark_changed()  # owners have not come to rest
    heir = best_placed(children, member.address)
    if mine is None or heir is None:
        return None
    brother_latency = children[heir].brother_latency
    return heir if brother_latency is not None and brother_latency < mine * BETTER else None
