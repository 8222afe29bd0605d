"""Which deliveries are due: interests and publications as the servers record them, by brute force.

It shares no code with the servers' matching but the definition of what a subscription wants.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast.matching.matcher import Batch, Floats, Integers
from nearcast.model.publication import wants
from nearcast.model.subscription import (
    Formula,
    NodeId,
    PublicationId,
    Subscription,
    SubscriptionId,
    Value,
)
from nearcast.space.motion import FOREVER, Moving, Path, Time
from nearcast.space.shapes import DISC
from nearcast.trace.recorder import Recorder

Pair: TypeAlias = tuple[PublicationId, SubscriptionId]
ROUNDING = 1.0 + 1e-9  # candidates may be a little too far away; `wants` decides


class DueDeliveries:
    """Interests and publications of a run, and what follows from them."""

    def __init__(self) -> None:
        self._versions: dict[SubscriptionId, list[tuple[Time, Subscription | None]]] = defaultdict(
            list
        )
        self._batches: list[Batch] = []
        self.made: dict[PublicationId, Time] = {}

    def interest(self, t: Time, subscription: Subscription) -> None:
        self._versions[subscription.id].append((t, subscription))

    def ended(self, t: Time, subscription: SubscriptionId) -> None:
        self._versions[subscription].append((t, None))

    def published(self, batch: Batch, numbers: Sequence[PublicationId]) -> None:
        self._batches.append(batch)
        self.made |= zip(numbers, batch.t.tolist(), strict=True)

    def subscriber(self, subscription: SubscriptionId) -> NodeId:
        """The entity that has, or had, this subscription."""
        return next(one.node for _, one in self._versions[subscription] if one is not None)

    def places(self) -> dict[PublicationId, tuple[float, float]]:
        """Where each publication was made."""
        found = (one for batch in self._batches for one in batch.publications)
        return {one.id: (one.shape.x, one.shape.y) for one in found}

    def pairs(self) -> set[Pair]:
        """Every publication with every subscription that wants it."""
        if not self._batches:
            return set()
        publications = [one for batch in self._batches for one in batch.publications]
        t = np.concatenate([batch.t for batch in self._batches])
        order = np.argsort(t, kind="stable")
        t = t[order]
        centre = np.concatenate([batch.centre for batch in self._batches])[order]
        extent = np.concatenate([batch.extent for batch in self._batches])[order]
        ordered = [publications[i] for i in order.tolist()]
        found: set[Pair] = set()
        for versions in self._versions.values():
            for since, until, subscription in _spans(versions):
                first, last = np.searchsorted(t, (since, until))
                for i in _candidates(subscription, t, centre, extent, int(first), int(last)):
                    one = ordered[i]
                    if wants(subscription, one, one.t):
                        found.add((one.id, subscription.id))
        return found


def _spans(
    versions: Sequence[tuple[Time, Subscription | None]],
) -> Iterator[tuple[Time, Time, Subscription]]:
    """When which version was in force. Of two at one moment, the later one counts."""
    ordered = sorted(versions, key=lambda version: version[0])
    ends = [t for t, _ in ordered[1:]] + [FOREVER]
    for (since, subscription), until in zip(ordered, ends, strict=True):
        if subscription is not None and since < until:
            yield since, until, subscription


def _candidates(
    subscription: Subscription, t: Integers, centre: Floats, extent: Floats, first: int, last: int
) -> Iterator[int]:
    """Publications from `first` to `last` whose box comes near enough."""
    region = subscription.region
    if isinstance(region, Formula):
        yield from range(first, last)
        return
    legs = region.legs if isinstance(region, Path) else (region,)
    begins = [first, *np.searchsorted(t[first:last], [leg.since for leg in legs[1:]]) + first, last]
    for leg, begin, end in zip(legs, begins, begins[1:], strict=False):
        span = slice(int(begin), int(end))
        near = _near(leg, t[span], centre[span], extent[span])
        yield from (np.flatnonzero(near) + span.start).tolist()


def _near(leg: Moving, t: Integers, centre: Floats, extent: Floats) -> NDArray[np.bool_]:
    shape = leg.shape
    seconds = np.clip(np.minimum(t, leg.until) - leg.since, 0, None)[:, None] / 1e6
    away = np.abs(np.array((shape.x, shape.y, shape.z)) + leg.velocity * seconds - centre)
    reach = np.maximum(np.array((shape.rx, shape.ry, shape.rz)) + leg.growth * seconds, 0.0)
    if shape.kind == DISC:  # a disc's extent is its radius, on every axis
        reach = reach[:, :1]
    far = np.maximum(extent, extent[:, :1])  # likewise of a publication
    near: NDArray[np.bool_] = (away <= (reach + far) * ROUNDING + 1e-6).all(axis=1)
    return near


class _NoSink:
    """Keeps nothing."""

    def write(self, tables: Mapping[str, pa.Table]) -> None:
        """There is nothing to write."""


class RealmRecorder(Recorder):
    """What the realms of all servers record: it goes into the trace, and decides what is due.

    `in_force`: by entity, its subscriptions that have not ended, and when each last changed.
    """

    def __init__(self, trace: Recorder, due: DueDeliveries | None) -> None:
        super().__init__(_NoSink(), "none")
        self._trace, self._due = trace, due
        self.in_force: dict[NodeId, dict[SubscriptionId, Time]] = {}

    def interest(self, t: Time, subscription: Subscription) -> None:
        self._trace.interest(t, subscription)
        self.in_force.setdefault(subscription.node, {})[subscription.id] = t
        if self._due is not None:
            self._due.interest(t, subscription)

    def ended(self, t: Time, node: NodeId, subscription: SubscriptionId) -> None:
        self._trace.ended(t, node, subscription)
        self.in_force.get(node, {}).pop(subscription, None)
        if self._due is not None:
            self._due.ended(t, subscription)

    def published_many(
        self, publications: Batch, numbers: Integers,
        attributes: Sequence[Mapping[str, Value]] | None, size: Integers,
    ) -> None:  # fmt: skip
        self._trace.published_many(publications, numbers, attributes, size)
        if self._due is not None:
            self._due.published(publications, numbers.tolist())

    def direct_sent(
        self, t: Time, node: NodeId, message: PublicationId, to: NodeId, size: int
    ) -> None:
        self._trace.direct_sent(t, node, message, to, size)

    def note(
        self, t: Time, node: NodeId, fact: str, about: int | None = None, value: float | None = None
    ) -> None:
        self._trace.note(t, node, fact, about, value)

    def noted_many(
        self, t: Time, node: Integers, fact: str, about: Integers, value: Floats | None = None
    ) -> None:
        self._trace.noted_many(t, node, fact, about, value)
