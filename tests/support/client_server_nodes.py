"""Nodes of client-server tests: Ann subscribes, Ben publishes, Eve sends what she should not."""

from random import Random

import pytest

from nearcast.matching import EXACT, MATCHERS
from nearcast.model.commands import Subscribe
from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription
from nearcast.protocols.client_server import CentralServer, CentralServerClient, Interest
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import disc, point

SERVER, ANN, BEN, EVE = FIRST_SERVER, 1, 2, 3
HERE, THERE = Moving(disc(0, 0, 1)), Moving(disc(100, 0, 1))
MATCHER_NAMES = pytest.mark.parametrize("matcher", EXACT)


def client(node: int = ANN, memory: int = 2 * SECOND) -> CentralServerClient:
    return CentralServerClient(node, Random(1), SERVER, memory)


def listener(memory: int = 2 * SECOND) -> CentralServerClient:
    """Ann, who has subscribed once."""
    ann = client(memory=memory)
    ann.obey(0, Subscribe(7, HERE, echo=True))
    return ann


def server(*known: Subscription, matcher: str = "scan") -> CentralServer:
    """A server that has received these interests from their subscribers."""
    result = CentralServer(SERVER, Random(1), MATCHERS[matcher]())
    for subscription in known:
        assert result.receive(0, subscription.node, Interest(subscription)) == []
    return result


def make_publication(publication: int, node: int = BEN, x: float = 0.0, t: int = 0) -> Publication:
    return Publication(publication, node, t, point(x, 0.0))
