"""The interface of matching engines: which subscriptions want this publication?

`ScanMatcher` is the oracle: every other engine gives its answer after any history of puts and
drops. `match` takes one publication, `match_many` a batch in columns: no Python object per pair.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription, SubscriptionId, Value
from nearcast.space.motion import Time
from nearcast.space.outlines import Outline
from nearcast.space.shapes import Shape

Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


class Batch(Struct, frozen=True):
    """Publications as columns. Each is matched with regions as they are at its own `t`."""

    t: Integers
    node: Integers
    kind: Integers
    centre: Floats  # (n, 3)
    extent: Floats  # (n, 3)
    channel: Sequence[str] | None  # None: all on the default channel
    publications: Sequence[Publication]  # for what kernels cannot decide
    attributes: Sequence[Mapping[str, Value]] | None = None  # None: the publications' own
    outlines: Sequence[Outline | None] | None = None  # None: no publication has one

    def __len__(self) -> int:
        return len(self.t)


def make_batch(publications: Sequence[Publication]) -> Batch:
    """The publications as columns."""
    shapes = [p.shape for p in publications]
    return Batch(
        np.array([p.t for p in publications], np.int64),
        np.array([p.node for p in publications], np.int64),
        np.array([s.kind for s in shapes], np.int64),
        np.array([(s.x, s.y, s.z) for s in shapes], np.float64).reshape(-1, 3),
        np.array([(s.rx, s.ry, s.rz) for s in shapes], np.float64).reshape(-1, 3),
        [p.channel for p in publications],
        publications,
        outlines=outlines_of(shapes),
    )


def outlines_of(shapes: Sequence[Shape]) -> Sequence[Outline | None] | None:
    """Their outlines; None if there are none, as usual."""
    if all(shape.outline is None for shape in shapes):
        return None
    return [shape.outline for shape in shapes]


class EvaluationCost(Struct, frozen=True):
    """Pairs whose formula or filter was evaluated, and how many steps each took at most."""

    publication: Integers
    subscription: Integers
    steps: Integers


class Matches(Struct, frozen=True):
    """Pairs, in no particular order: the index within the batch, and the subscription."""

    publication: Integers
    subscription: Integers
    cost: EvaluationCost | None = None  # what formulas and filters cost, if the engine counts it


def match_each(
    publications: Batch, match: Callable[[Publication, Time], Iterable[SubscriptionId]]
) -> Matches:
    """The pairs that `match` gives for one publication at a time, in their order."""
    pairs = [(i, s) for i, p in enumerate(publications.publications) for s in match(p, p.t)]
    columns = np.array(pairs, np.int64).reshape(-1, 2)
    return Matches(columns[:, 0], columns[:, 1])


def concatenate_matches(a: Matches, b: Matches) -> Matches:
    """The pairs of both, without their cost."""
    return Matches(
        np.concatenate((a.publication, b.publication)),
        np.concatenate((a.subscription, b.subscription)),
    )


class Matcher(Protocol):
    """Holds subscriptions and finds those that want a publication. An engine may inherit from it:
    then nothing becomes stale, and a batch is matched one by one."""

    def put(self, subscription: Subscription) -> None:
        """Add the subscription, or replace the one with the same id."""
        ...

    def drop(self, subscription: SubscriptionId) -> None:
        """Remove the subscription, if it is there."""
        ...

    def match(self, publication: Publication, at: Time) -> list[SubscriptionId]:
        """The ids of those that want it, ascending, with regions as they are at `at`."""
        ...

    def match_many(self, publications: Batch) -> Matches:
        """The same for a whole batch, each publication at its own `t`; here one after the other."""
        return match_each(publications, self.match)

    def due(self) -> Time | None:
        """When `refresh` is next due; None: never."""
        return None

    def refresh(self, now: Time) -> None:
        """Update what has become stale, in engines that trade freshness for speed."""
        del now
