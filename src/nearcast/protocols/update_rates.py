"""Fewer updates between peers that are far apart ([Lucas2011] 7.2: near, medium and far regions).

publisher P                              subscriber S, which has `rates`
  │── a publication ─────────────────────────▶│ sooner than S wants it: S withholds it
  │◀──────────────────────────── UpdateRates ─│ "beyond 30 of my place, at most one in 500 ms"
  │   P withholds, for VALID                  │

The subscriber's peer applies its rates exactly, whatever reaches it. Whenever it has withheld
something, it tells the publisher, which then does not send it. A publisher forgets that after
VALID, so nobody has to take it back; one publication in VALID is then sent in vain. A publisher
measures from its publication to where it knows the subscriber, so it may err by as far as that one
has moved since.

A server through which all publications go knows the rates with the interests, and withholds what is
not due itself (`ServerRates`).

What is withheld has a note `withheld` about the publication, with the subscriber as its value.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from math import hypot
from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta

from nearcast.model.commands import Subscribe, Unsubscribe
from nearcast.model.interests import InterestCommand
from nearcast.model.publication import Publication
from nearcast.model.rates import NEVER_AGAIN, RULES, Rates, min_interval
from nearcast.model.subscription import NodeId, Region, Subscription, SubscriptionId
from nearcast.node import Message, Node
from nearcast.protocols.interests import PeerInterests, ball_around_region
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import Shape, Vector

VALID: Time = 10 * SECOND  # a publisher does as it was told for so long
TELL_EVERY: Time = SECOND // 2  # while what is under way still comes
MOST_CHANNELS = 16
MOST_SUBSCRIBERS = 10_000  # that a publisher listens to
MOST_KEPT = 4096  # latest deliveries or sendings, before old ones are forgotten
SAME_PLACE = 1e-3  # of the smallest distance of a rule
ROUNDED = 1e-9  # relative

Distance: TypeAlias = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
Interval: TypeAlias = Annotated[int, Meta(ge=0, le=NEVER_AGAIN)]
# Beyond such a distance, one publication in so many microseconds; distances grow.
Rules: TypeAlias = Annotated[tuple[tuple[Distance, Interval], ...], Meta(max_length=RULES)]


class UpdateRates(Message, frozen=True, tag=81):
    """What I want of your publications, by channel, by their distance from my place."""

    protocol: ClassVar[str] = "rates"
    lossy: ClassVar[bool] = True
    channels: Annotated[tuple[tuple[str, Rules], ...], Meta(max_length=MOST_CHANNELS)]


class _Latest:
    """When the latest publication of each flow was let through."""

    def __init__(self) -> None:
        self._when: dict[tuple[int, int | str], Time] = {}
        self._room = MOST_KEPT

    def admit(self, flow: tuple[int, int | str], t: Time, away: float, rules: Rules) -> bool:
        """May a publication of `t` from so far away pass? If so, it is the latest."""
        apart: Time = 0
        for beyond, interval in rules:
            if away > beyond:
                apart = interval
        if apart == NEVER_AGAIN:
            return False
        last = self._when.get(flow)
        if apart and last is not None and t - last < apart:
            return False
        self._when[flow] = t
        if len(self._when) > self._room:
            oldest = t - 100 * SECOND  # the slowest rate that there is
            self._when = {one: then for one, then in self._when.items() if then > oldest}
            self._room = max(MOST_KEPT, 2 * len(self._when))
        return True


class RateLimits:
    """The update rates of one peer: what it wants, and what others want of it."""

    def __init__(
        self, node: Node, interests: PeerInterests, send: Callable[[NodeId, UpdateRates], None],
        *, flat: bool = False,
    ) -> None:  # fmt: skip
        """`flat`: distances are those of x and y."""
        self._node, self._interests, self._send, self._flat = node, interests, send, flat
        self._mine: dict[SubscriptionId, Rules] = {}
        self._delivered, self._sent = _Latest(), _Latest()
        self._told: dict[NodeId, Time] = {}
        # What subscribers want by channel, and until when.
        self._theirs: dict[NodeId, tuple[Time, dict[str, Rules]]] = {}

    # As a subscriber.

    def obey(self, command: InterestCommand) -> None:
        """Note the rates of a subscription, and tell whom they concern. The interests are as the
        command leaves them."""
        if not isinstance(command, Subscribe | Unsubscribe):
            return
        self._mine.pop(command.subscription, None)
        if isinstance(command, Subscribe) and command.rates:
            self._mine[command.subscription] = rules_of(command.rates)
        self._tell_all()

    def admit(
        self, publication: Publication, wanting: list[SubscriptionId]
    ) -> list[SubscriptionId]:
        """Those of the subscriptions whose rates let it through. It arrives for the first time."""
        if not self._mine:
            return wanting
        kept = [number for number in wanting if self._is_due(number, publication)]
        if len(kept) < len(wanting):
            self._node.out.note("withheld", publication.id, self._node.id)
            self._tell(publication.node, publication.channel)
        return kept

    def _is_due(self, number: SubscriptionId, publication: Publication) -> bool:
        rules, wanted = self._mine.get(number), self._interests.current(number)
        if rules is None or wanted is None:
            return True
        away = _away(wanted.region, publication)
        return self._delivered.admit((number, publication.node), publication.t, away, rules)

    def _wishes(self) -> tuple[tuple[str, Rules], ...]:
        """Rules by channel, where a publisher can follow them: of a channel's only subscription,
        and measured from the place where others know this peer."""
        channels: dict[str, list[SubscriptionId]] = {}
        for wanted in self._interests.present():
            channels.setdefault(wanted.channel, []).append(wanted.id)
        wishes = [
            (channel, self._mine[numbers[0]])
            for channel, numbers in channels.items()
            if len(numbers) == 1 and numbers[0] in self._mine and self._is_central(numbers[0])
        ]
        return tuple(wishes[:MOST_CHANNELS])

    def _is_central(self, number: SubscriptionId) -> bool:
        wanted, now = self._interests.current(number), self._node.now
        assert wanted is not None
        centre, place = ball_around_region(wanted.region, now), self._interests.area(now)
        if centre is None or place is None:
            return False
        rounding = ROUNDED * (1 + sum(map(abs, place.place)))
        return centre.away(*place.place) <= SAME_PLACE * self._mine[number][0][0] + rounding

    def _tell(self, publisher: NodeId, channel: str) -> None:
        now = self._node.now
        if publisher == self._node.id or now - self._told.get(publisher, -VALID) < TELL_EVERY:
            return
        wishes = self._wishes()
        if any(wished == channel for wished, _ in wishes):
            if len(self._told) >= MOST_KEPT:
                self._told = {one: t for one, t in self._told.items() if t > now - VALID}
            self._told[publisher] = now
            self._send(publisher, UpdateRates(wishes))

    def _tell_all(self) -> None:
        """Whom it has told lately, what holds now; that may be nothing."""
        if not self._told:
            return
        since, wishes = self._node.now - VALID, self._wishes()
        for publisher, t in self._told.items():
            if t > since:
                self._send(publisher, UpdateRates(wishes))
        self._told = {publisher: t for publisher, t in self._told.items() if wishes and t > since}

    # As a publisher.

    def learn(self, subscriber: NodeId, message: UpdateRates) -> None:
        """What a peer that this one knows wants from now on."""
        self._theirs.pop(subscriber, None)
        if message.channels and len(self._theirs) < MOST_SUBSCRIBERS:
            self._theirs[subscriber] = self._node.now + VALID, dict(message.channels)

    def receivers(
        self,
        publication: Publication,
        nodes: Sequence[NodeId],
        place_of: Callable[[NodeId], Vector],
    ) -> Sequence[NodeId]:
        """Those of these nodes that want this publication of ours; notes the others."""
        if not self._theirs:
            return nodes
        now = self._node.now
        self._theirs = {node: wish for node, wish in self._theirs.items() if wish[0] > now}
        kept = []
        for node in nodes:
            wish = self._theirs.get(node)
            rules = wish[1].get(publication.channel) if wish is not None else None
            if rules is not None:
                away = self._distance(place_of(node), publication.shape)
                if not self._sent.admit((node, publication.channel), publication.t, away, rules):
                    self._node.out.note("withheld", publication.id, node)
                    continue
            kept.append(node)
        return kept

    def _distance(self, place: Vector, shape: Shape) -> float:
        x, y, z = place
        dz = 0.0 if self._flat else z - shape.z
        return hypot(x - shape.x, y - shape.y, dz)


class ServerRates:
    """What subscribers want less of, at the server that sends each of them all that it gets."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._rules: dict[SubscriptionId, Rules] = {}
        self._sent = _Latest()

    def put(self, number: SubscriptionId, rules: Rules) -> None:
        """The subscription has these rules from now on; it may have none."""
        self._rules.pop(number, None)
        if rules:
            self._rules[number] = rules

    def admit(
        self,
        publication: Publication,
        subscriber: NodeId,
        wanting: list[SubscriptionId],
        known: Mapping[SubscriptionId, Subscription],
    ) -> list[SubscriptionId]:
        """Those of a subscriber's subscriptions whose rates let it through."""
        if not self._rules:
            return wanting
        kept = [number for number in wanting if self._is_due(known[number], publication)]
        if len(kept) < len(wanting):
            self._node.out.note("withheld", publication.id, subscriber)
        return kept

    def _is_due(self, wanted: Subscription, publication: Publication) -> bool:
        rules = self._rules.get(wanted.id)
        if rules is None:
            return True
        away = _away(wanted.region, publication)
        return self._sent.admit((wanted.id, publication.node), publication.t, away, rules)


def _away(region: Region, publication: Publication) -> float:
    """How far a publication was from the region's centre; 0 if that has none."""
    area, shape = ball_around_region(region, publication.t), publication.shape
    return 0.0 if area is None else area.away(shape.x, shape.y, shape.z)


def rules_of(rates: Rates) -> Rules:
    return tuple((beyond, min_interval(most)) for beyond, most in sorted(rates))
