"""Which subscriptions want this publication? One interface for every engine.

`Scan` is the oracle; every other engine must give its answer for every history of puts and drops.
`match` takes publications one by one, `match_many` in columns: no Python object per pair.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription, SubscriptionId, Value
from nearcast.space.motion import Time

Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


class Batch(Struct, frozen=True):
    """Publications as columns. Regions are looked at at `t`, each publication's own moment."""

    t: Integers
    node: Integers
    kind: Integers
    centre: Floats  # (n, 3)
    extent: Floats  # (n, 3)
    channel: Sequence[str] | None  # None: all on the default channel
    publications: Sequence[Publication]  # for what kernels cannot judge
    attributes: Sequence[Mapping[str, Value]] | None = None  # None: ask the publications for them

    def __len__(self) -> int:
        return len(self.t)


def make_batch(publications: Sequence[Publication]) -> Batch:
    shapes = [p.shape for p in publications]
    return Batch(
        np.array([p.t for p in publications], np.int64),
        np.array([p.node for p in publications], np.int64),
        np.array([s.kind for s in shapes], np.int64),
        np.array([(s.x, s.y, s.z) for s in shapes], np.float64).reshape(-1, 3),
        np.array([(s.rx, s.ry, s.rz) for s in shapes], np.float64).reshape(-1, 3),
        [p.channel for p in publications],
        publications,
    )


class EvaluationCost(Struct, frozen=True):
    """Pairs whose formula or filter was asked, and how many steps that took at most."""

    publication: Integers
    subscription: Integers
    steps: Integers


class Matches(Struct, frozen=True):
    """Pairs, in no particular order: the index within the batch, and the subscription."""

    publication: Integers
    subscription: Integers
    cost: EvaluationCost | None = None  # what formulas and filters cost, if the engine counts it


class Matcher(Protocol):
    def put(self, subscription: Subscription) -> None:
        """From now on it wants this; an earlier subscription of the same id is replaced whole."""
        ...

    def drop(self, subscription: SubscriptionId) -> None:
        """Forget it. Dropping what is not there is no mistake: messages may cross."""
        ...

    def match(self, publication: Publication, at: Time) -> list[SubscriptionId]:
        """Who wants it, with regions as they are at `at`: ids in ascending order."""
        ...

    def match_many(self, publications: Batch) -> Matches:
        """The same for a whole batch, each publication at its own `t`."""
        ...

    def due(self) -> Time | None:
        """When `refresh` is next wanted; None: never."""
        ...

    def refresh(self, now: Time) -> None:
        """Let an engine that trades freshness for speed catch up."""
        ...
