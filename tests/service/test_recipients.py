"""Direct messages: exactly those get one who are the entity that it is for."""

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.client_protocol import messages
from nearcast.client_protocol.limits import Limits
from nearcast.matching import MATCHERS
from nearcast.node import Effect
from nearcast.service.access.grants import Channels, Grant
from nearcast.service.connection import Connection
from nearcast.service.effects import DeliverDirect, Refuse, Reply
from nearcast.service.realm import Realm
from nearcast.service.service import Service
from support.examples import examples

LIMITS = Limits(payload=200)
ANYBODY = Grant()


class Room:
    """A service and its connections, without sockets."""

    def __init__(self) -> None:
        self.service = Service(0, Random(0), Realm(MATCHERS["scan"](), LIMITS, None), LIMITS)
        self.service.start(0)
        self.now = 0

    def join(
        self, name: str, grant: Grant = ANYBODY, form: messages.Encoding = messages.JSON
    ) -> Connection:
        self.now += 1
        connection = Connection(1_000, 0.0)
        connection.encoding = form
        self.service.open(self.now, connection)
        self.service.join(self.now, connection, messages.JoinRequest(name), grant)
        return connection

    def leave(self, connection: Connection) -> None:
        self.now += 1
        self.service.close(self.now, connection)

    def publish_as(self, connection: Connection, name: str) -> None:
        request = messages.PublishRequest(0.0, 0.0, name=name)
        self.service.publish(connection, request, messages.JSON)

    def send(
        self, connection: Connection, to: messages.EntityKey, payload: object = None,
        name: str = "", form: messages.Encoding = messages.JSON,
    ) -> list[Effect]:  # fmt: skip
        self.now += 1
        request = messages.SendRequest(to, form.encode_payload(payload), name, id=7)
        return self.service.send(self.now, connection, request, form)


def entity_of(connection: Connection) -> int:
    assert connection.client is not None
    return connection.client.entity


def heard(effects: list[Effect]) -> list[tuple[Connection, messages.DirectNotice]]:
    return [(one.connection, one.notice) for one in effects if isinstance(one, DeliverDirect)]


def refusal(effects: list[Effect]) -> str:
    (refused,) = effects
    assert isinstance(refused, Refuse) and refused.error.id == 7
    return refused.error.reason


def test_it_goes_to_the_entity_of_this_name_or_number_and_says_who_sent_it() -> None:
    room = Room()
    ann, ben, packed = room.join("ann"), room.join("ben"), room.join("cat", form=messages.MSGPACK)
    effects = room.send(ann, "ben", {"hello": 1})
    ((to, notice),) = heard(effects)
    assert to is ben
    assert (notice.source, notice.name, notice.t, notice.to) == (
        entity_of(ann),
        "ann",
        room.now,
        "",
    )
    assert bytes(notice.payload) == b'{"hello":1}'
    (done,) = [one.notice for one in effects if isinstance(one, Reply)]
    assert done == messages.DoneNotice(7, room.now, notice.number)
    ((to, notice),) = heard(room.send(ben, entity_of(packed), {"hello": 1}))
    assert to is packed and messages.MSGPACK.decode_payload(notice.payload) == {"hello": 1}


def test_who_publishes_for_an_entity_gets_its_messages_and_sends_for_it() -> None:
    room = Room()
    game, player = room.join("game"), room.join("player")
    room.publish_as(game, "orc")
    ((to, notice),) = heard(room.send(player, "orc", "hi"))
    assert to is game and notice.to == "orc"
    ((to, notice),) = heard(room.send(game, "player", "grr", name="orc"))
    assert game.client is not None
    orc = game.client.entities["orc"]
    assert to is player and (notice.source, notice.name) == (orc.entity, "orc")
    assert "you do not speak for 'elf'" in refusal(room.send(game, "player", name="elf"))


def test_a_client_that_is_two_entities_of_one_name_gets_it_once() -> None:
    room = Room()
    game, player = room.join("orc"), room.join("player")
    room.publish_as(game, "orc")
    assert [to for to, _ in heard(room.send(player, "orc"))] == [game]


@pytest.mark.parametrize(
    ("to", "payload", "reason"),
    [
        ("nobody", None, "there is no entity 'nobody' here: nobody has received your message"),
        (12, None, "there is no entity 12 here: nobody has received your message"),
        ("", None, "give its name or its number"),
        (-1, None, "an entity's number is from 0"),
        (2**53, None, "an entity's number is from 0"),
        ("x" * 65, None, "a name has at most 64 characters"),
        ("ann", "x" * 200, "a payload has at most 200 bytes"),
    ],
)
def test_what_cannot_be_delivered_is_refused(
    to: messages.EntityKey, payload: object, reason: str
) -> None:
    room = Room()
    assert reason in refusal(room.send(room.join("ann"), to, payload))


def test_a_payload_that_nobody_could_read_is_refused() -> None:
    room = Room()
    ann = room.join("ann")
    request = messages.SendRequest("ann", messages.Raw(b'"\xff"'), id=7)
    effects = room.service.send(room.now, ann, request, messages.JSON)
    assert "the payload cannot be read" in refusal(effects)


@pytest.mark.parametrize(
    ("grant", "to", "allowed"),
    [
        (Grant(role="publish"), "ben", True),
        (Grant(role="read"), "ben", False),
        (Grant(role="publish", publish_channels=Channels(["*"])), "ben", False),
        (Grant(role="publish", send_to=Channels(["b*"])), "ben", True),
        (Grant(role="publish", send_to=Channels(["c*"])), "ben", False),
        (Grant(role="publish", send_to=Channels([])), "ben", False),
        (Grant(role="read", send_to=Channels(["*"])), 2, True),
    ],
)
def test_a_token_says_to_whom(grant: Grant, to: messages.EntityKey, allowed: bool) -> None:
    room = Room()
    ann = room.join("ann", grant)
    assert entity_of(room.join("ben")) == 2
    effects = room.send(ann, to)
    assert len(heard(effects)) == allowed
    if not allowed:
        assert refusal(effects) == "your token does not allow you to send to 'ben'"


def test_who_has_not_joined_sends_nothing() -> None:
    room = Room()
    room.join("ben")
    stranger = Connection(1_000, 0.0)
    assert refusal(room.send(stranger, "ben")) == "join first"


NAMES = ["", "ann", "ben", "orc"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "leave", "as", "send", "send", "number"]),
        st.integers(0, 7),
        st.sampled_from(NAMES),
    ),
    max_size=40,
)


def bearers(clients: list[Connection], to: messages.EntityKey) -> Iterator[Connection]:
    """The naive way: everybody is looked at."""
    for connection in clients:
        assert connection.client is not None
        for entity in (connection.client, *connection.client.entities.values()):
            if to in (entity.name, entity.entity) and to != "":
                yield connection
                break


@examples(200)
@given(STEPS)
def test_in_any_history_exactly_those_get_it_who_are_the_entity(
    steps: list[tuple[str, int, str]],
) -> None:
    room = Room()
    clients = [room.join("ann")]
    for what, which, name in steps:
        one = clients[which % len(clients)]
        if what == "join":
            clients.append(room.join(name))
        elif what == "leave" and len(clients) > 1:
            clients.remove(one)
            room.leave(one)
        elif what == "as" and name:
            room.publish_as(one, name)
        elif what in ("send", "number"):
            to: messages.EntityKey = which if what == "number" else name
            expected = list(bearers(clients, to))
            found = [connection for connection, _ in heard(room.send(one, to))]
            assert sorted(map(id, found)) == sorted(map(id, expected))
