"""What the trace says of fences: who asks for events, the areas over time, and what was told.

Whoever reads the trace can then compute the events from the publications alone, and compare.
Watches, pairs, and areas that follow an entity are left out: what they are told is not judged.
"""

from collections.abc import Iterable

import msgspec

from nearcast.client_protocol.messages import FeatureId, FenceNotice
from nearcast.fences.areas import shapes_of
from nearcast.service.client_state import ActiveSubscription
from nearcast.service.fences.sets import PreparedFences
from nearcast.space.motion import SECOND, Moving, Path, Time
from nearcast.trace.recorder import Recorder

Place = tuple[float, float, float]


class FenceRecording:
    """Writes the tables of fences. Events wait until they are told."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._waiting: list[tuple[ActiveSubscription, FenceNotice, Place]] = []

    def begin(self, now: Time, active: ActiveSubscription) -> None:
        """This subscription is told of events from now on."""
        if not is_judged(active):
            return
        options = active.fence_options
        dwell = None if options.dwell is None else round(options.dwell * SECOND)
        events = (*options.events, "dwell") if dwell is not None else options.events
        self._recorder.fence_interest(
            now, active.subscription, options.fences, tuple(dict.fromkeys(events)), dwell,
            round(active.linger * SECOND),
        )  # fmt: skip

    def end(self, now: Time, active: ActiveSubscription) -> None:
        """It is not told any more, also not what waits."""
        if not is_judged(active):
            return
        wanted = active.subscription
        self._recorder.fence_interest_ended(now, wanted.node, wanted.id)
        self._waiting = [one for one in self._waiting if one[0] is not active]

    def put_area(self, now: Time, active: ActiveSubscription, region: Moving | Path) -> None:
        """This is its area from now on, as the engine has it."""
        if is_judged(active):
            self._recorder.fence_area(now, active.subscription.node, active.subscription.id, region)

    def change_set(
        self, now: Time, name: str, gone: Iterable[FeatureId], prepared: PreparedFences
    ) -> None:
        """A set has these features no more, and those from now on."""
        for feature in gone:
            self._recorder.set_fence(now, name, feature_text(feature), None)
        for feature, shape in zip(prepared.ids, shapes_of(prepared.columns), strict=True):
            self._recorder.set_fence(now, name, feature_text(feature), shape)

    def tell(self, active: ActiveSubscription, notice: FenceNotice, place: Place) -> None:
        """The subscription will be told this."""
        if is_judged(active):
            self._waiting.append((active, notice, place))

    def write_waiting(self, now: Time) -> None:
        """All that has waited is told now."""
        waiting, self._waiting = self._waiting, []
        for active, notice, place in waiting:
            fence = None if notice.fence is None else feature_text(notice.fence)
            self._recorder.fence_event(
                now, active.subscription.node, active.subscription.id, fence, notice.entity,
                notice.event, notice.reason or None, notice.t, notice.t_out, place,
            )  # fmt: skip


def is_judged(active: ActiveSubscription) -> bool:
    options = active.fence_options
    return not (options.watch or active.follow or options.near is not None)


def feature_text(feature: FeatureId) -> str:
    """Its id as JSON: a text and a number that look alike are two ids."""
    return msgspec.json.encode(feature).decode()
