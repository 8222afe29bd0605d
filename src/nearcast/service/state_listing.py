"""Retained states as answers list them."""

import numpy as np

from nearcast.client_protocol import messages
from nearcast.matching.matcher import Integers
from nearcast.model.rates import has_centre
from nearcast.model.subscription import Formula, Subscription
from nearcast.service.retained_state import RetainedStates
from nearcast.space.motion import Time

ANSWER_BYTES = 1_048_576  # of payloads that `inside` or `nearby` lists


def closest_first(
    states: RetainedStates, feeds: Integers, subscription: Subscription, now: Time
) -> Integers:
    """By distance from the region's centre, then by entity."""
    centre, entity = states.places_of_states(feeds)
    region = subscription.region
    if isinstance(region, Formula) or not has_centre(region):
        return feeds[np.argsort(entity, kind="stable")]
    away = centre - region.centre(now)
    return feeds[np.lexsort((entity, np.sqrt((away * away).sum(axis=1))))]


def list_states(
    states: RetainedStates, feeds: Integers, most: int, form: messages.Encoding
) -> tuple[list[int], list[messages.EntityState]]:
    """The first feeds and their states, as many as one answer may have."""
    found: list[int] = []
    entities: list[messages.EntityState] = []
    left = ANSWER_BYTES
    for feed in feeds[:most].tolist():
        entity = states.state(feed).entity(form)
        left -= len(entity.payload)
        if left < 0:
            break
        found.append(feed)
        entities.append(entity)
    return found, entities
