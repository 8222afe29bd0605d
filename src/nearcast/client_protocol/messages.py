"""The messages between clients and a node, version 1; `docs/reference/wire.md` describes them.

A message is a request (from a client) or a notice (from a node). It has two encodings. In JSON it
is an object, named by "do" (a request) or "is" (a notice). In MessagePack it is an array: its
number, then its fields in the order they have here, of which the last may be left out. The client
sends first, and the node answers in the encoding of the client's first frame.

Payloads are any value. The node checks once that they can be read (`Encoding.check_payload`),
passes them on as they are (`msgspec.Raw`), and translates them only for clients of the other
encoding.
"""

import json
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, Union

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple, fields

from nearcast.client_protocol.geometry_json import Area, Geometry
from nearcast.client_protocol.payloads import MAX_NESTING, Unreadable, is_json_value, nests_too_deep
from nearcast.errors import MalformedMessageError
from nearcast.model.evolution import EvolutionKind
from nearcast.model.subscription import Value

VERSION = 1
SubscriptionNumber: TypeAlias = int  # chosen by the client, its own
FenceEventName: TypeAlias = Literal["leave", "cross", "enter", "dwell", "inside", "outside"]
FeatureId: TypeAlias = str | int  # of a fence in a set
EntityKey: TypeAlias = str | int  # the name of an entity, or its number; "": none
LeaveReasonName: TypeAlias = Literal["", "left", "expired", "gone", "removed"]
NO_PAYLOAD = Raw(b"")
BUSY = "the node is busy"  # how an error begins if the same request may be accepted later


class Request(
    Struct, frozen=True, tag_field="do", forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """From a client. With an `id` it is answered by `done` or `error` of the same id.

    Messages have no reference cycles, so the garbage collector need not track them (`gc=False`).
    """


class PublishRequest(Request, frozen=True, tag="publish"):
    """For every subscription whose area this point, disc or box touches when the node accepts it.

    `retain`: this is the entity's state on the channel from now on. Subscriptions that watch an
    area it is in know it, and it replaces an earlier one that a slow client has not received yet.
    `ttl`: the state ends by itself after so many seconds, and not with the client's connection.
    `name`: one of the other entities for which this client publishes, each with its own states;
    the first publication under a name creates the entity.
    In a plane x and y say where it is made, on Earth lon and lat, in degrees.
    """

    x: float | None = None
    y: float | None = None
    payload: Raw = NO_PAYLOAD
    retain: bool = False
    attributes: dict[str, Value] = {}
    channel: str = ""
    z: float = 0.0
    r: float | None = None
    rx: float | None = None
    ry: float | None = None
    rz: float | None = None
    id: int | None = None
    name: str = ""
    lon: float | None = None
    lat: float | None = None
    alt: float | None = None  # metres above the ellipsoid
    ttl: float | None = None  # seconds after which the state expires


class JoinRequest(Request, frozen=True, tag="join"):
    """The first request of every client.

    With the `ticket` of a `moved`, the client stays the same entity, on another node.
    """

    name: str = ""
    token: str = ""
    id: int | None = None
    ticket: str = ""


class LeaveRequest(Request, frozen=True, tag="leave"):
    """The client leaves; its subscriptions and states end."""

    id: int | None = None


class SubscribeRequest(Request, frozen=True, tag="subscribe"):
    """Receive what is published in this area. The same number again replaces that subscription.

    `watch`: report presence, that is who is in the area (`inside`), who enters it (`enter`) and who
    leaves it (`leave`): of all entities with a retained state on this channel that the filter
    accepts. `linger` is for how many seconds an entity must be outside before `leave` is sent, so
    that one at the border does not flap: 0.3 if not given, and 0 with `events`.
    `events`: the area is a fence, and these events about it are reported at their own times
    (`fence`), computed at every retained publication on this channel that the filter accepts.
    `dwell`: after how many seconds inside. `fences`: instead of an area, all fences of this set;
    such a subscription receives no messages.
    `follow`: the area goes where the retained state of this entity is, by its name or number, on
    `follow_channel` (None: on this channel). It is written relative to the entity; on Earth it has
    no place, and `offset` is metres east and north.
    `near`: instead of an area, all pairs of entities on this channel that come within this distance
    of each other, and go apart again; such a subscription receives no messages.
    `evolve`: how brokers follow an area that moves or a formula; periodic may have an `interval`,
    cached a `threshold`, both in seconds. A node has no such choice: it is always exact.
    `rates`, `closest` and `budget` ask for less than everything; see `docs/reference/wire.md`.
    """

    subscription: SubscriptionNumber
    area: Area = Area()
    filter: str | None = None
    channel: str = ""
    echo: bool = False
    variables: dict[str, float] = {}
    watch: bool = False
    linger: float | None = None
    rates: list[tuple[float, float]] = []  # (beyond this distance, at most so many a second)
    closest: int | None = None
    budget: float | None = None  # bytes a second
    id: int | None = None
    events: list[FenceEventName] = []
    dwell: float | None = None
    fences: str = ""
    follow: EntityKey = ""
    follow_channel: str | None = None
    offset: list[float] = []
    near: float | None = None
    evolve: EvolutionKind | Literal[""] = ""
    interval: float | None = None
    threshold: float | None = None


class MoveRequest(Request, frozen=True, tag="move"):
    """The subscription has this area from now on; all else about it stays."""

    subscription: SubscriptionNumber
    area: Area
    id: int | None = None


class TuneRequest(Request, frozen=True, tag="tune"):
    """New values for variables in the subscription's formula or filter."""

    subscription: SubscriptionNumber
    variables: dict[str, float]
    id: int | None = None


class UnsubscribeRequest(Request, frozen=True, tag="unsubscribe"):
    """End a subscription."""

    subscription: SubscriptionNumber
    id: int | None = None


class NearbyRequest(Request, frozen=True, tag="nearby"):
    """Ask for the entities in this area now. Answered by `nearby`, the closest first."""

    area: Area
    channel: str = ""
    limit: int = 100
    id: int | None = None


class WithdrawRequest(Request, frozen=True, tag="withdraw"):
    """The retained state on this channel ends; without a channel, all states of the entity.

    `name`: of an entity for which this client publishes; it leaves when all its states end.
    """

    channel: str | None = None
    name: str = ""
    id: int | None = None


class FencesRequest(Request, frozen=True, tag="fences"):
    """Change a set of fences: put these features of a GeoJSON FeatureCollection, by their ids, and
    remove others. `replace`: the set has these features alone; without any, it ends."""

    name: str
    features: list[dict[str, Any]] = []
    remove: list[FeatureId] = []
    replace: bool = False
    id: int | None = None


class SendRequest(Request, frozen=True, tag="send"):
    """Send a message to one entity, wherever it is and whatever it subscribes to.

    The clients that are this entity, or publish for it, get it as `direct`. Refused if there are
    none. `name`: of an entity for which this client publishes, which is then the sender.
    """

    to: EntityKey
    payload: Raw = NO_PAYLOAD
    name: str = ""
    id: int | None = None


class Notice(Struct, frozen=True, tag_field="is", omit_defaults=True):
    """From a node."""


class EntityState(Struct, frozen=True, omit_defaults=True):
    """An entity's retained state: where and when it was published, and with which content.

    It has x and y in a plane, lon and lat on Earth.
    """

    entity: int
    t: int
    x: float | None = None
    y: float | None = None
    z: float = 0.0
    name: str = ""
    attributes: dict[str, Value] = {}
    payload: Raw = NO_PAYLOAD
    lon: float | None = None
    lat: float | None = None
    alt: float | None = None


class MessageNotice(Notice, frozen=True, tag="message"):
    """A publication, for these subscriptions of the client: by x and y, or lon and lat."""

    to: list[SubscriptionNumber]
    source: int = msgspec.field(name="from")
    publication: int
    t: int  # microseconds of Unix time, by the node's clock
    x: float | None = None
    y: float | None = None
    payload: Raw = NO_PAYLOAD
    retain: bool = False
    attributes: dict[str, Value] = {}
    channel: str = ""
    z: float = 0.0
    r: float | None = None
    rx: float | None = None
    ry: float | None = None
    rz: float | None = None
    lon: float | None = None
    lat: float | None = None
    alt: float | None = None


class WelcomeNotice(Notice, frozen=True, tag="welcome"):
    """Answers `join`: who the client is, and what the node allows."""

    entity: int
    t: int
    node: str = ""
    version: int = VERSION
    limits: dict[str, float] = {}
    id: int | None = None
    nodes: list[str] = []  # other nodes of the cluster, for the case that this one fails
    geometry: Geometry = "plane"


class DoneNotice(Notice, frozen=True, tag="done"):
    """The request with this id has taken effect."""

    id: int
    t: int  # when it took effect; of a publication, when it was accepted
    publication: int | None = None
    subscription: int | None = None  # its number in the node's trace; clients have their own


class ErrorNotice(Notice, frozen=True, tag="error"):
    """A request was refused, and has changed nothing."""

    reason: str
    id: int | None = None


class InsideNotice(Notice, frozen=True, tag="inside"):
    """All entities in the area of a subscription that watches or is a fence, when it begins or
    is replaced."""

    subscription: SubscriptionNumber
    entities: list[EntityState]
    fences: list[FeatureId] = []  # of a set: the fence in which each of them is


class EnterNotice(Notice, frozen=True, tag="enter"):
    """An entity is now in the area of a watching subscription."""

    subscription: SubscriptionNumber
    entity: EntityState


class LeaveNotice(Notice, frozen=True, tag="leave"):
    """An entity has left the area; `gone`: it has no state any more, or has left the node."""

    subscription: SubscriptionNumber
    entity: int
    gone: bool = False


class FencePlace(Struct, frozen=True, omit_defaults=True):
    """Where something happened: x, y and z in a plane, lon and lat on Earth."""

    x: float | None = None
    y: float | None = None
    z: float = 0.0
    lon: float | None = None
    lat: float | None = None


class FenceNotice(Notice, frozen=True, tag="fence"):
    """An event of an entity at the fence of a subscription with `events`.

    `t` is when it happened. It may be between two publications of the entity, which went straight
    from one place to the other. A crossing has the time and the place of its end too.
    `direction`, in degrees, is that of the way: in a plane counter-clockwise from +x, on Earth the
    bearing. Absent: it happened without one.
    """

    subscription: SubscriptionNumber
    event: FenceEventName
    t: int
    entity: int
    place: FencePlace
    name: str = ""  # of the entity
    direction: float | None = None
    reason: LeaveReasonName = ""  # of a leave
    t_out: int | None = None
    place_out: FencePlace | None = None
    state: EntityState | None = None  # with `enter`: what the entity published last
    fence: FeatureId | None = None  # of a set: which
    other: int | None = None  # with `near`: the other one of the pair, which stands
    other_name: str = ""
    other_state: EntityState | None = None  # with `enter`, `cross` and `inside`


class DirectNotice(Notice, frozen=True, tag="direct"):
    """A message that an entity has sent to this client alone."""

    source: int = msgspec.field(name="from")
    number: int  # of the message; publications of the node have other numbers
    t: int  # microseconds of Unix time, by the node's clock
    payload: Raw = NO_PAYLOAD
    name: str = ""  # of the sender
    to: str = ""  # the entity of this client that it is for; "": the client itself


class NearbyNotice(Notice, frozen=True, tag="nearby"):
    """Answers `nearby`."""

    entities: list[EntityState]
    id: int | None = None


class WithheldNotice(Notice, frozen=True, tag="withheld"):
    """How many messages the node withheld from this subscription since the last such notice:
    because of its `rates`, `closest` or `budget`."""

    subscription: SubscriptionNumber
    rate: int = 0
    closest: int = 0
    budget: int = 0


class DroppedNotice(Notice, frozen=True, tag="dropped"):
    """The client reads too slowly: how many messages were dropped since the last such notice."""

    messages: int
    superseded: int = 0  # of them, states that a newer one had replaced


class ByeNotice(Notice, frozen=True, tag="bye"):
    """The last notice on a connection: why the node ends it."""

    reason: str


class MovedNotice(Notice, frozen=True, tag="moved"):
    """Another node of the cluster is ready to serve the client, and has its subscriptions.

    The client connects there and joins with the ticket. Until then, nothing changes here.
    """

    to: str
    ticket: str


class NodesNotice(Notice, frozen=True, tag="nodes"):
    """The other nodes of the cluster, to which the client may connect if this node fails."""

    nodes: list[str]


REQUESTS: tuple[type[Request], ...] = (
    PublishRequest, JoinRequest, LeaveRequest, SubscribeRequest, MoveRequest, TuneRequest,
    UnsubscribeRequest, NearbyRequest, WithdrawRequest, FencesRequest, SendRequest,
)  # fmt: skip
NOTICES: tuple[type[Notice], ...] = (
    MessageNotice, WelcomeNotice, DoneNotice, ErrorNotice, InsideNotice, EnterNotice, LeaveNotice,
    NearbyNotice, WithheldNotice, DroppedNotice, ByeNotice, MovedNotice,
    NodesNotice, FenceNotice, DirectNotice,
)  # fmt: skip


PUBLISH = REQUESTS.index(PublishRequest) + 1
REQUEST_IDS_END = 2**53  # an id is below: a double holds it exactly
LONG_ARRAY = 0xDC  # the first byte of an array that has more than 15 elements, in MessagePack
MAX_REPAIRED_BYTES = 4_096  # bytes of a frame that is not quite JSON in which an id is looked for


def _defaults(message: type[Struct]) -> tuple[Any, ...]:
    """For each field, the value that may be left out."""
    return tuple(
        field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        for field in fields(message)
    )


def _array_class(message: type[Struct], number: int) -> type[Struct]:
    """A class with the same fields that decodes the array encoding, with this number in front."""
    columns: list[Any] = []
    for field in fields(message):
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = msgspec.field(default_factory=field.default_factory)
        columns.append((field.name, field.type, *(() if field.required else (default,))))
    array_class: type[Struct] = msgspec.defstruct(
        message.__name__, columns, frozen=True, array_like=True, tag=number, gc=False
    )
    return array_class


DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)


def as_malformed(why: Exception) -> MalformedMessageError:
    return MalformedMessageError(_reason(why))


def _reason(why: Exception) -> str:
    """The reason in one line; our own text where Python's would not help a client's author."""
    if isinstance(why, UnicodeDecodeError):
        return "text is not valid UTF-8"
    if isinstance(why, RecursionError):
        return "arrays and objects are nested too deep"
    return " ".join(str(why)[:200].split())


class _Identified(Struct):
    """A request of which only the id is read."""

    id: Any = None


_identified = msgspec.json.Decoder(_Identified).decode
_elements = msgspec.msgpack.Decoder(list[Raw]).decode
_integer = msgspec.msgpack.Decoder(int).decode


class Encoding:
    """JSON or MessagePack: how messages become frames, and back.

    A message that was decoded from MessagePack has the same fields as one from JSON, but another
    class: `message_class` gives the class that is declared above.
    """

    def __init__(self, name: str, binary: bool) -> None:
        self.name, self.binary = name, binary
        module: Any = msgspec.msgpack if binary else msgspec.json
        self._numbers: dict[type[Struct], tuple[int, tuple[Any, ...]]] = {}
        self._declared: dict[type[Struct], type[Struct]] = {}
        classes: list[tuple[type[Struct], ...]] = []
        for declared in (REQUESTS, NOTICES):
            numbered = list(enumerate(declared, 1))
            self._numbers |= {one: (number, _defaults(one)) for number, one in numbered}
            classes.append(tuple(_array_class(c, n) if binary else c for n, c in numbered))
            self._declared |= dict(zip(classes[-1], declared, strict=True))
        requests, self._notices = (module.Decoder(Union[group]) for group in classes)  # noqa: UP007
        # For hot paths: `read_request` that raises DECODE_ERRORS, and the class of a publication.
        self.decode_request: Callable[[bytes], Any] = requests.decode
        self.publish_class: Any = classes[0][PUBLISH - 1]
        self._encode: Callable[[Any], bytes] = module.Encoder().encode
        # The value inside a payload; it raises DECODE_ERRORS.
        self.decode_value: Callable[[Any], Any] = module.Decoder().decode
        # Bytes that may open an array or an object.
        self._openers = bytes((*range(0x80, 0xA0), *range(0xDC, 0xE0))) if binary else b"[{"

    def encode(self, message: Struct) -> bytes:
        if not self.binary:
            return self._encode(message)
        number, defaults = self._numbers[type(message)]
        values = list(astuple(message))
        while values and values[-1] == defaults[len(values) - 1]:
            values.pop()
        return self._encode([number, *(None if value is NO_PAYLOAD else value for value in values)])

    def read_request(self, frame: bytes) -> Any:
        try:
            return self.decode_request(frame)
        except DECODE_ERRORS as why:
            raise as_malformed(why) from None

    def read_notice(self, frame: bytes) -> Any:
        try:
            return self._notices.decode(frame)
        except DECODE_ERRORS as why:
            raise as_malformed(why) from None

    def request_id(self, frame: bytes) -> int | None:
        """The id of a request that `read_request` refuses, if it can be found."""
        try:
            number = _packed_id(frame) if self.binary else _json_id(frame)
        except DECODE_ERRORS:
            return None
        return number if type(number) is int and 0 <= number < REQUEST_IDS_END else None

    def message_class(self, message: Struct) -> type[Struct]:
        return self._declared[type(message)]

    def decode_payload(self, payload: Raw) -> Any:
        """The value inside a payload of this encoding; None if there is none."""
        return self.decode_value(payload) if len(payload) else None

    def try_decode_payload(self, payload: Raw) -> Any:
        """The value inside a payload, or an `Unreadable` if it cannot be decoded."""
        try:
            return self.decode_payload(payload)
        except DECODE_ERRORS as why:
            return Unreadable(bytes(payload), _reason(why))

    def encode_payload(self, value: Any) -> Raw:
        return NO_PAYLOAD if value is None else Raw(self._encode(value))

    def check_payload(self, payload: Raw) -> None:
        """MalformedMessageError unless every client of this encoding can read the payload.

        The message's decoder has checked that the payload is complete, but not whether texts in it
        are valid UTF-8, numbers are in range, and nesting is bounded.
        """
        try:
            value = self.decode_value(payload)
        except DECODE_ERRORS as why:
            raise MalformedMessageError(f"the payload cannot be read: {_reason(why)}") from None
        # Each level takes a byte that opens it, so few payloads need to be looked at.
        if (
            len(payload) > MAX_NESTING
            and len(payload) - len(bytes(payload).translate(None, self._openers)) > MAX_NESTING
            and nests_too_deep(value)
        ):
            raise MalformedMessageError(f"a payload nests at most {MAX_NESTING} arrays and objects")

    def translate_payload(self, payload: Raw, other: "Encoding") -> Raw:
        """The payload in another encoding; NO_PAYLOAD if that encoding cannot express it."""
        if other is self or not len(payload):
            return payload
        try:
            value = self.decode_value(payload)
            return (
                other.encode_payload(value) if other.binary or is_json_value(value) else NO_PAYLOAD
            )
        except Exception:  # of any kind: what others receive must not depend on it
            return NO_PAYLOAD


def _json_id(frame: bytes) -> Any:
    try:
        return _identified(frame).id
    except DECODE_ERRORS:
        if len(frame) > MAX_REPAIRED_BYTES:
            return None
    # Python's own parser also takes what is nearly JSON: NaN, half a surrogate pair, any bytes.
    decoded = json.loads(frame.decode("utf-8", "replace"))
    return decoded.get("id") if isinstance(decoded, dict) else None


def _packed_id(frame: bytes) -> int | None:
    elements = _elements(frame)
    number = _integer(elements[0]) if elements else 0
    if not 1 <= number <= len(REQUESTS):
        return None
    place = 1 + REQUESTS[number - 1].__struct_fields__.index("id")
    return _integer(elements[place]) if place < len(elements) else None


def is_publish_frame(frame: bytes) -> bool:
    """Does a MessagePack frame begin as a publication does: an array, its number first?

    Only those on Earth or with a ttl have more than 15 elements.
    """
    if len(frame) > 1 and frame[1] == PUBLISH and frame[0] >> 4 == 9:
        return True
    return len(frame) > 3 and frame[0] == LONG_ARRAY and frame[3] == PUBLISH


JSON = Encoding("json", binary=False)
MSGPACK = Encoding("msgpack", binary=True)
