"""The events of a whole history of fixes, for tests to compare with."""

from collections.abc import Sequence

import numpy as np

from nearcast.fences.areas import NEVER, Fence, FenceColumns
from nearcast.fences.events import FenceEvents, FixColumns, in_order
from nearcast.fences.fence_state import FenceEngine
from nearcast.space.motion import LATEST, Time

HISTORY_BATCH = 100_000


def events_of_history(
    fixes: FixColumns, fences: FenceColumns, moving: Sequence[Fence] = (), until: Time = LATEST,
    earth: bool = False,
) -> FenceEvents:  # fmt: skip
    """The events of all fixes, sorted by entity and time, up to and including `until`.

    The same as a live engine reports that has all fences from the beginning. Entities do not
    affect each other, so a history may be cut into parts by entity.
    """
    engine = FenceEngine(earth)
    engine.put_fences(fences, -NEVER)
    engine.put_moving(moving, -NEVER)
    found = [
        engine.fixes(fixes.part(slice(begin, begin + HISTORY_BATCH)))
        for begin in range(0, len(fixes.entity), HISTORY_BATCH)
    ]
    return in_order(np.concatenate([*found, engine.advance(until)]))
