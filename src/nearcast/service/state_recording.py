"""What the trace says of retained states: which publications they are, and when they end."""

from collections.abc import Sequence

import numpy as np

from nearcast.service.client_state import AcceptedPublication
from nearcast.service.retained_state import PublicationTable, RetainedStates
from nearcast.space.motion import SECOND, Time
from nearcast.trace.recorder import Recorder


def record_states(
    recorder: Recorder, t: Time, accepted: Sequence[AcceptedPublication], table: PublicationTable
) -> None:
    """Which of these publications are states now, and for how long."""
    retained = (accepted[i] for i in np.flatnonzero(table["retain"]).tolist())
    made = [one for one in retained if one.is_state]
    if made:
        lives = [one.request.ttl for one in made]
        recorder.states_made(
            t, [one.client.entity for one in made], [one.id for one in made],
            [None if ttl is None else round(ttl * SECOND) for ttl in lives],
        )  # fmt: skip


def record_ended_states(recorder: Recorder, now: Time, states: RetainedStates) -> bool:
    """States that were withdrawn have ended now. Whether there were any."""
    ended, states.ended = states.ended or [], []
    for entity, publication in ended:
        recorder.state_ended(now, entity, publication)
    return bool(ended)
