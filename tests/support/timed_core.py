"""A client core, the time of its inputs, and what nodes say to it."""

from random import Random
from typing import Any

from nearcast.client.core import ClientCore
from nearcast.client.effects import (
    AnswerDue,
    Answered,
    Ask,
    ClientEffect,
    ClientParameters,
    RetryDue,
    Welcomed,
)
from nearcast.client.received import Entity, Message
from nearcast.client.subscription_state import SubscriptionState
from nearcast.client_protocol.geometry_json import area_from_region, as_region
from nearcast.client_protocol.messages import (
    DoneNotice,
    EntityState,
    JoinRequest,
    MessageNotice,
    Notice,
    PublishRequest,
    SubscribeRequest,
    WelcomeNotice,
)
from nearcast.model.subscription import Region
from nearcast.node import SetTimer, Timer
from nearcast.space.motion import Time
from nearcast.space.shapes import Shape

ENTITY = 7
LEAD: Time = 10**9  # of the node's clock
PARAMETERS = ClientParameters()
ANSWER_TIMER = SetTimer(AnswerDue(), PARAMETERS.answer)
PUBLISH = PublishRequest(1.0, 2.0)


class TimedCore:
    """A core, and the time that its inputs happen at."""

    def __init__(self, nodes: list[str] | None = None, seed: int = 5, **options: Any) -> None:
        self.core = ClientCore("anna", Random(seed), **options)
        self.now: Time = 0
        self.nodes = nodes or []
        self.limits: dict[str, float] = {}  # of the nodes

    def opened(self) -> "TimedCore":
        """Served by the first node, on connection 1."""
        self.core.open(self.now)
        self.connected(1)
        assert self.welcome(1, 1) == [Welcomed(ENTITY)]
        return self

    def connected(self, connection: int) -> list[ClientEffect]:
        return self.core.connected(self.now, connection, "token")

    def get(self, connection: int, *notices: Notice) -> list[ClientEffect]:
        return [
            effect
            for notice in notices
            for effect in self.core.received(self.now, connection, type(notice), notice)
        ]

    def welcome(
        self, connection: int, number: int, node: str = "a", entity: int = ENTITY
    ) -> list[ClientEffect]:
        welcome = WelcomeNotice(
            entity, self.now + LEAD, node, limits=self.limits, id=number, nodes=list(self.nodes)
        )
        return self.get(connection, welcome)

    def done(self, connection: int, number: int) -> list[ClientEffect]:
        return self.get(connection, self.done_notice(number))

    def done_notice(self, number: int) -> DoneNotice:
        return DoneNotice(number, self.now + LEAD)

    def ask(self, request: Any, confirm: bool = True) -> tuple[int, list[ClientEffect]]:
        return self.core.request(self.now, request, confirm)

    def subscribe(
        self, where: Shape | Region | str, **options: Any
    ) -> tuple[int, SubscriptionState, list[ClientEffect]]:
        region = as_region(where)
        request = SubscribeRequest(0, area_from_region(region), **options)
        return self.core.subscribe(self.now, request, region, isinstance(where, Shape))

    def subscribed(self, where: Shape | Region | str, **options: Any) -> SubscriptionState:
        number, state, effects = self.subscribe(where, **options)
        assert isinstance(effects[0], Ask)
        assert isinstance(self.done(effects[0].connection, number)[-1], Answered)
        return state

    def lost(self, connection: int, reason: str = "", code: int = 1006) -> list[ClientEffect]:
        return self.core.lost(self.now, connection, reason, code)

    def wake(self, timer: Timer, after: Time = 0) -> list[ClientEffect]:
        self.now += after
        return self.core.wake(self.now, timer)


def message_notice(publication: int, to: list[int] | None = None, **more: Any) -> MessageNotice:
    return MessageNotice(to or [1], 3, publication, 1, 0.0, 0.0, **more)


def message(publication: int, to: list[int] | None = None) -> Message:
    return Message(
        3, publication, 1, 0.0, 0.0, 0.0, None, None, None, None, None, {}, "", False, to or [1]
    )


def join(number: int, ticket: str = "") -> JoinRequest:
    return JoinRequest("anna", "token", number, ticket)


def publish(number: int) -> PublishRequest:
    return PublishRequest(1.0, 2.0, id=number)


def somebody(entity: int) -> EntityState:
    return EntityState(entity, 1, 0.0, 0.0)


def entity(number: int, x: float = 0.0, t: Time = 1) -> Entity:
    return Entity(number, t, x, 0.0, 0.0, "", {}, None)


def timer_delay(effects: list[ClientEffect]) -> Time:
    assert isinstance(effects[-1], SetTimer)
    return effects[-1].delay


def pause(effects: list[ClientEffect]) -> Time:
    delay = timer_delay(effects)
    assert effects[-1] == SetTimer(RetryDue(), delay)
    return delay
