"""What clients and a live node say to each other; `docs/reference/wire.md` is about this file.

Each word has two forms. In JSON it is an object, named by "do" (a request) or "is" (a notice). In
MessagePack it is an array: its number, then its fields in the order they have here, of which the
last may be left out. Clients speak first, and are answered in the form of their first frame.

Payloads are any value. The node checks once that they can be read (`Encoding.check`), passes them
on
as they are (`msgspec.Raw`), and translates them only for those who speak the other form.
"""

import json
from collections.abc import Callable
from typing import Any, TypeAlias, Union

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple, fields

from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.payloads import DEEPEST, Unreadable, has_json, too_deep
from nearcast.errors import MalformedMessageError
from nearcast.model.subscription import Value

VERSION = 1
Number: TypeAlias = int  # a client's own number of a request or of one of its subscriptions
NOTHING = Raw(b"")


class Request(
    Struct, frozen=True, tag_field="do", forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """From a client. With an `id` it is answered by `done` or `error` of the same id.

    Words are values without cycles: the garbage collector need not look at thousands a second.
    """


class PublishRequest(Request, frozen=True, tag="publish"):
    """To everyone whose area this point, disc or box touches, at the moment the node accepts it.

    `retain`: this is my state from now on. Whoever watches an area I am in knows it, and it makes
    an earlier one that a slow client has not had yet superfluous.
    `name`: one of the other entities for which this client speaks, with states of its own; the
    first publication under a name creates it.
    """

    x: float
    y: float
    payload: Raw = NOTHING
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


class JoinRequest(Request, frozen=True, tag="join"):
    """The first word of every client.

    With the `ticket` of a `moved`, it is the same entity as before, on another node.
    """

    name: str = ""
    token: str = ""
    id: int | None = None
    ticket: str = ""


class LeaveRequest(Request, frozen=True, tag="leave"):
    """I go; all my subscriptions end."""

    id: int | None = None


class SubscribeRequest(Request, frozen=True, tag="subscribe"):
    """From now on I listen here. The same number again replaces that subscription whole.

    `watch`: tell me who is there (`inside`), who comes (`enter`) and who goes (`leave`): of all
    entities with a retained state on this channel that the filter accepts. `linger` is for how many
    seconds somebody must be gone before I am told: nobody flaps at a border.
    `rates`, `closest` and `budget` ask for less than everything; see `docs/reference/wire.md`.
    """

    subscription: Number
    area: Area = Area()
    filter: str | None = None
    channel: str = ""
    echo: bool = False
    variables: dict[str, float] = {}
    watch: bool = False
    linger: float = 0.3
    rates: list[tuple[float, float]] = []  # (beyond this distance, at most so many a second)
    closest: int | None = None
    budget: float | None = None  # bytes a second
    id: int | None = None


class MoveRequest(Request, frozen=True, tag="move"):
    """The subscription's area is this one from now on; all else about it stays."""

    subscription: Number
    area: Area
    id: int | None = None


class TuneRequest(Request, frozen=True, tag="tune"):
    """New numbers for variables in the subscription's formula or filter."""

    subscription: Number
    variables: dict[str, float]
    id: int | None = None


class UnsubscribeRequest(Request, frozen=True, tag="unsubscribe"):
    subscription: Number
    id: int | None = None


class NearbyRequest(Request, frozen=True, tag="nearby"):
    """Who is in this area now? Answered by `nearby`: the closest first."""

    area: Area
    channel: str = ""
    limit: int = 100
    id: int | None = None


class WithdrawRequest(Request, frozen=True, tag="withdraw"):
    """The retained state on this channel ends; without a channel, all states of the entity.

    `name`: of an entity for which this client speaks; it leaves when all its states end.
    """

    channel: str | None = None
    name: str = ""
    id: int | None = None


class Notice(Struct, frozen=True, tag_field="is", omit_defaults=True):
    """From a node."""


class EntityState(Struct, frozen=True, omit_defaults=True):
    """Someone's retained state: where it was said to be, when, and what it said."""

    entity: int
    t: int
    x: float
    y: float
    z: float = 0.0
    name: str = ""
    attributes: dict[str, Value] = {}
    payload: Raw = NOTHING


class MessageNotice(Notice, frozen=True, tag="message"):
    """A publication, for these of your subscriptions."""

    to: list[Number]
    source: int = msgspec.field(name="from")
    publication: int
    t: int  # microseconds of Unix time, by the node's clock
    x: float
    y: float
    payload: Raw = NOTHING
    retain: bool = False
    attributes: dict[str, Value] = {}
    channel: str = ""
    z: float = 0.0
    r: float | None = None
    rx: float | None = None
    ry: float | None = None
    rz: float | None = None


class WelcomeNotice(Notice, frozen=True, tag="welcome"):
    entity: int
    t: int
    node: str = ""
    version: int = VERSION
    limits: dict[str, float] = {}
    id: int | None = None
    nodes: list[str] = []  # where else in the cluster a client may go, should this node fail


class DoneNotice(Notice, frozen=True, tag="done"):
    id: int
    t: int  # when it took effect; of a publication, when it was accepted
    publication: int | None = None
    subscription: int | None = None  # its number in the node's trace; clients have their own


class ErrorNotice(Notice, frozen=True, tag="error"):
    """Refused, and nothing was changed by it."""

    reason: str
    id: int | None = None


class InsideNotice(Notice, frozen=True, tag="inside"):
    """Everyone whom this subscription watches, at the moment it began or was replaced."""

    subscription: Number
    entities: list[EntityState]


class EnterNotice(Notice, frozen=True, tag="enter"):
    subscription: Number
    entity: EntityState


class LeaveNotice(Notice, frozen=True, tag="leave"):
    """No longer there: it went out of the area, or away altogether."""

    subscription: Number
    entity: int
    gone: bool = False


class NearbyNotice(Notice, frozen=True, tag="nearby"):
    entities: list[EntityState]
    id: int | None = None


class WithheldNotice(Notice, frozen=True, tag="withheld"):
    """So many messages for this subscription were kept back since the last such notice, as asked:
    by rate, because others were closer, by budget."""

    subscription: Number
    rate: int = 0
    closest: int = 0
    budget: int = 0


class DroppedNotice(Notice, frozen=True, tag="dropped"):
    """You read too slowly: so many messages were given up since the last such notice."""

    messages: int
    superseded: int = 0  # of them, states that a newer one had replaced


class ByeNotice(Notice, frozen=True, tag="bye"):
    """The last word of a node: why it ends the connection."""

    reason: str


class MovedNotice(Notice, frozen=True, tag="moved"):
    """Another node of the cluster waits for you, and has all your subscriptions.

    Connect there and join with the ticket. Until you have, nothing changes here.
    """

    to: str
    ticket: str


class NodesNotice(Notice, frozen=True, tag="nodes"):
    """Where else in the cluster you may go from now on, should this node fail."""

    nodes: list[str]


REQUESTS: tuple[type[Request], ...] = (
    PublishRequest, JoinRequest, LeaveRequest, SubscribeRequest, MoveRequest, TuneRequest,
    UnsubscribeRequest, NearbyRequest, WithdrawRequest,
)  # fmt: skip
NOTICES: tuple[type[Notice], ...] = (
    MessageNotice, WelcomeNotice, DoneNotice, ErrorNotice, InsideNotice, EnterNotice, LeaveNotice,
    NearbyNotice, WithheldNotice, DroppedNotice, ByeNotice, MovedNotice,
    NodesNotice,
)  # fmt: skip


_PUBLISH = REQUESTS.index(PublishRequest) + 1
IDS_END = 2**53  # an id is below: a double holds it exactly
LONGEST_GUESS = 4_096  # bytes of a frame that is not quite JSON in which an id is looked for


def _defaults(word: type[Struct]) -> tuple[Any, ...]:
    """Of each field: the value that need not be said."""
    return tuple(
        field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        for field in fields(word)
    )


def _compact(word: type[Struct], number: int) -> type[Struct]:
    """The same fields as an array behind a number, to read with."""
    columns: list[Any] = []
    for field in fields(word):
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = msgspec.field(default_factory=field.default_factory)
        columns.append((field.name, field.type, *(() if field.required else (default,))))
    twin: type[Struct] = msgspec.defstruct(
        word.__name__, columns, frozen=True, array_like=True, tag=number, gc=False
    )
    return twin


UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)


def unreadable(why: Exception) -> MalformedMessageError:
    return MalformedMessageError(_reason(why))


def _reason(why: Exception) -> str:
    """In one line, and in our words where Python's would not help."""
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
    """JSON or MessagePack: how words become frames, and back.

    What is read from either form has the same fields, but not the same class: `kind` names it.
    """

    def __init__(self, name: str, binary: bool) -> None:
        self.name, self.binary = name, binary
        module: Any = msgspec.msgpack if binary else msgspec.json
        self._numbers: dict[type[Struct], tuple[int, tuple[Any, ...]]] = {}
        self._kinds: dict[type[Struct], type[Struct]] = {}
        twins: list[tuple[type[Struct], ...]] = []
        for words in (REQUESTS, NOTICES):
            numbered = list(enumerate(words, 1))
            self._numbers |= {word: (number, _defaults(word)) for number, word in numbered}
            twins.append(tuple(_compact(w, n) if binary else w for n, w in numbered))
            self._kinds |= dict(zip(twins[-1], words, strict=True))
        requests, self._notices = (module.Decoder(Union[group]) for group in twins)  # noqa: UP007
        # For who reads thousands a second: as `request`, but it raises what UNREADABLE names; and
        # the class of a publication.
        self.decode_request: Callable[[bytes], Any] = requests.decode
        self.publish: Any = twins[0][_PUBLISH - 1]
        self._encode: Callable[[Any], bytes] = module.Encoder().encode
        # The value inside a payload; it raises what UNREADABLE names.
        self.decode: Callable[[Any], Any] = module.Decoder().decode
        # Bytes that may open an array or an object.
        self._openers = bytes((*range(0x80, 0xA0), *range(0xDC, 0xE0))) if binary else b"[{"

    def write(self, word: Struct) -> bytes:
        if not self.binary:
            return self._encode(word)
        number, defaults = self._numbers[type(word)]
        values = list(astuple(word))
        while values and values[-1] == defaults[len(values) - 1]:
            values.pop()
        return self._encode([number, *(None if value is NOTHING else value for value in values)])

    def request(self, frame: bytes) -> Any:
        try:
            return self.decode_request(frame)
        except UNREADABLE as why:
            raise unreadable(why) from None

    def notice(self, frame: bytes) -> Any:
        try:
            return self._notices.decode(frame)
        except UNREADABLE as why:
            raise unreadable(why) from None

    def request_id(self, frame: bytes) -> int | None:
        """The id of a request that `request` refuses, as far as it can be found."""
        try:
            number = _packed_id(frame) if self.binary else _json_id(frame)
        except UNREADABLE:
            return None
        return number if type(number) is int and 0 <= number < IDS_END else None

    def kind(self, word: Struct) -> type[Struct]:
        return self._kinds[type(word)]

    def open(self, payload: Raw) -> Any:
        """The value inside a payload of this form; None if there is none."""
        return self.decode(payload) if len(payload) else None

    def read(self, payload: Raw) -> Any:
        """The value inside a payload, or an `Unreadable` if it cannot be decoded."""
        try:
            return self.open(payload)
        except UNREADABLE as why:
            return Unreadable(bytes(payload), _reason(why))

    def seal(self, value: Any) -> Raw:
        return NOTHING if value is None else Raw(self._encode(value))

    def check(self, payload: Raw) -> None:
        """WordError unless everybody who speaks this form can read the payload.

        A word's decoder has seen that it is whole, but not whether texts in it are valid UTF-8,
        numbers are in range, and nesting is bounded.
        """
        try:
            value = self.decode(payload)
        except UNREADABLE as why:
            raise MalformedMessageError(f"the payload cannot be read: {_reason(why)}") from None
        # Each level takes a byte that opens it, so few payloads need to be looked at.
        if (
            len(payload) > DEEPEST
            and len(payload) - len(bytes(payload).translate(None, self._openers)) > DEEPEST
            and too_deep(value)
        ):
            raise MalformedMessageError(f"a payload nests at most {DEEPEST} arrays and objects")

    def translated(self, payload: Raw, form: "Encoding") -> Raw:
        """A payload of this form in another one; NOTHING if that form cannot express it."""
        if form is self or not len(payload):
            return payload
        try:
            value = self.decode(payload)
            return form.seal(value) if form.binary or has_json(value) else NOTHING
        except Exception:  # of whatever kind: what others hear must not depend on it
            return NOTHING


def _json_id(frame: bytes) -> Any:
    try:
        return _identified(frame).id
    except UNREADABLE:
        if len(frame) > LONGEST_GUESS:
            return None
    # Python's own parser also takes what is nearly JSON: NaN, half a surrogate pair, any bytes.
    word = json.loads(frame.decode("utf-8", "replace"))
    return word.get("id") if isinstance(word, dict) else None


def _packed_id(frame: bytes) -> int | None:
    elements = _elements(frame)
    number = _integer(elements[0]) if elements else 0
    if not 1 <= number <= len(REQUESTS):
        return None
    place = 1 + REQUESTS[number - 1].__struct_fields__.index("id")
    return _integer(elements[place]) if place < len(elements) else None


def publishes(frame: bytes) -> bool:
    """Does a packed frame begin as a publication does: a short array, and its number first?"""
    return len(frame) > 1 and frame[1] == _PUBLISH and frame[0] >> 4 == 9


JSON = Encoding("json", binary=False)
PACKED = Encoding("msgpack", binary=True)
