"""What a client's application receives: messages, entities and their changes, the connection's."""

from typing import Any, TypeAlias

from msgspec import Struct

from nearcast.client_protocol.close_codes import ABNORMAL
from nearcast.client_protocol.geometry_json import place_shape
from nearcast.client_protocol.messages import FeatureId, FenceEventName, FencePlace
from nearcast.model.subscription import Value
from nearcast.space.motion import Time
from nearcast.space.shapes import Shape


class Message(Struct, frozen=True):
    """A publication that this client receives."""

    source: int  # the entity that published it
    publication: int  # its number, unique on the node and in its cluster
    t: Time  # when it was accepted: microseconds of Unix time by the node's clock
    x: float  # the centre of where it was published; 0 on Earth
    y: float
    z: float
    r: float | None  # the radius, of a disc or ball
    rx: float | None  # the half-extents, of a box
    ry: float | None
    rz: float | None
    payload: Any  # None without one; an `Unreadable` if it cannot be decoded
    attributes: dict[str, Value]  # what filters look at
    channel: str
    retain: bool  # it is the publisher's state from now on
    to: list[int]  # the numbers of the subscriptions that it is for (`Subscription.number`)
    lon: float | None = None  # on Earth: where it was published, in degrees
    lat: float | None = None
    alt: float | None = None  # its altitude in metres, if it has one

    @property
    def shape(self) -> Shape:
        """Where it was published: a point, a disc, a ball or a box."""
        return place_shape(self)


class DirectMessage(Struct, frozen=True):
    """A message that an entity has sent to this client alone (`Client.send`)."""

    source: int  # the entity that sent it
    name: str  # its name
    number: int  # of the message, unique on the node and in its cluster
    t: Time  # when it was accepted: microseconds of Unix time by the node's clock
    payload: Any  # None without one; an `Unreadable` if it cannot be decoded
    to: str = ""  # the entity of this client that it is for (`publish(name=…)`); "": itself


class Entity(Struct, frozen=True):
    """An entity and its retained state: what it last published with `retain`, and where."""

    entity: int  # its number; that of its client is `Client.entity`
    t: Time  # when the state was published: microseconds of Unix time by the node's clock
    x: float  # where; 0 on Earth
    y: float
    z: float
    name: str  # of its client, or the `name` under which it was published
    attributes: dict[str, Value]
    payload: Any
    lon: float | None = None  # on Earth: where, in degrees
    lat: float | None = None
    alt: float | None = None  # its altitude in metres, if it has one


class Entered(Struct, frozen=True):
    """An entity is now in the area of a watching subscription."""

    entity: Entity  # with its state


class Left(Struct, frozen=True):
    """An entity is no longer in the area of a watching subscription."""

    entity: Entity  # with its last known state
    gone: bool  # True: it has ended its state or left the node; False: it is outside the area


Change: TypeAlias = Entered | Left


class FenceEvent(Struct, frozen=True):
    """What an entity did at the fence of a subscription with `events`.

    The place may lie between two publications of the entity: it is then on the straight way from
    one to the other, and the time is interpolated.
    """

    event: FenceEventName
    t: Time  # when it happened: microseconds of Unix time by the node's clock
    entity: int
    name: str
    place: FencePlace  # x, y and z; on Earth lon and lat
    direction: float | None = None  # of the way, in degrees; None if there was none
    reason: str = ""  # of a leave: "left", "expired", "gone" or "removed"
    t_out: Time | None = None  # of a cross: when and where it ended
    place_out: FencePlace | None = None
    state: Entity | None = None  # of an enter, and of who was inside at first
    fence: FeatureId | None = None  # of a set: the id of its feature
    other: int | None = None  # with `near`: the other one of the pair, where `entity` has moved
    other_name: str = ""
    other_state: Entity | None = None  # of an enter, a cross, and of pairs that were near at first


class Disconnected(Struct, frozen=True):
    """The connection has ended. `code` is its WebSocket close code; 1006 if it just broke."""

    reason: str
    code: int = ABNORMAL


class HandedOver(Struct, frozen=True, tag_field="is", tag="handed over"):
    """Another node serves this client now. It is the same entity, and nothing was lost."""

    node: str  # its name
    url: str
