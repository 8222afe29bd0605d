"""Whether a request keeps to what its client's token allows. Refused says why not."""

from typing import Any

from nearcast.client_protocol.geometry_json import Area, Geometry, place_shape
from nearcast.client_protocol.limits import Limits, checked_region, refuse_value_errors
from nearcast.client_protocol.messages import EntityKey
from nearcast.errors import Refused
from nearcast.service.access.grants import Grant
from nearcast.service.connection import Connection
from nearcast.space.motion import Moving
from nearcast.space.shapes import EVERYWHERE

CONFINED = "your token allows you to listen only within its area: no area may follow an entity"


def check_publishing(grant: Grant, request: Any) -> None:
    """Where and on which channel this client publishes."""
    area = None
    if grant.within is not None:
        with refuse_value_errors():
            area = place_shape(request)
    if reason := grant.refusal(area, request.channel):
        raise Refused(reason)


def check_sending(grant: Grant, to: EntityKey) -> None:
    """To whom it sends direct messages."""
    if reason := grant.sending_refusal(str(to)):
        raise Refused(reason)


def check_fence_set(grant: Grant, name: str) -> None:
    """Which sets of fences it changes."""
    if reason := grant.fences_refusal(name):
        raise Refused(reason)


def check_listening(
    grant: Grant, area: Area, channel: str, limits: Limits, geometry: Geometry
) -> None:
    """Where and on which channel it listens, watches or looks."""
    if grant.limits_listening:
        with refuse_value_errors():
            region = checked_region(area, limits, geometry)
        if reason := grant.listening_refusal(region, channel):
            raise Refused(reason)


def check_following(grant: Grant, request: Any) -> None:
    """Whose state may move an area. Where that takes it cannot be known beforehand."""
    if grant.listen_within is not None:
        raise Refused(CONFINED)
    channel = request.channel if request.follow_channel is None else request.follow_channel
    if reason := grant.listening_refusal(Moving(EVERYWHERE), channel):
        raise Refused(reason)


def may_listen(connection: Connection) -> bool:
    """Does the token of this connection allow all that its client listens to?"""
    grant, client = connection.grant, connection.client
    if grant is None or client is None or not grant.limits_listening:
        return True
    wanted = [active.subscription for active in client.subscriptions.values()]
    if any(grant.listening_refusal(one.region, one.channel) for one in wanted):
        return False
    followed = [active.follow.channel for active in client.subscriptions.values() if active.follow]
    return not any(grant.listening_refusal(Moving(EVERYWHERE), one) for one in followed)
