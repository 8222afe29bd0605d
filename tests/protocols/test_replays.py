"""A message of another peer that somebody replays changes nothing, and is noted.

The attacker has a link and a name of its own. It replays messages of honest peers as it received
them, or old ones that it has kept.
"""

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from nearcast.model.commands import Subscribe
from nearcast.model.publication import Publication
from nearcast.node import Deliver, Message, Node, Note
from nearcast.protocols import client_server
from nearcast.protocols.contacts import Contacts
from nearcast.protocols.dedup import DUPLICATE_WINDOW
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.protocols.psense import layouts
from nearcast.protocols.psense import messages as psense
from nearcast.protocols.psense.parameters import Parameters as PSenseParameters
from nearcast.protocols.psense.peer import PSensePeer
from nearcast.protocols.relays.directory import (
    Interest,
    NeighbourhoodUpdate,
    Notify,
    Post,
    RelayDirectory,
)
from nearcast.protocols.relays.messages import RelayedPublication, Update
from nearcast.protocols.relays.peer import Parameters as RelaysParameters
from nearcast.protocols.relays.peer import RelayPeer
from nearcast.protocols.voronoi import mesh_messages, von
from nearcast.protocols.voronoi.mesh_messages import SiteInfo
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import disc, point
from support.node_state import state

ME, ANN, BEN, EVE = 0, 1, 2, 9  # a peer, two that it knows, and the stranger
NOW = 10_000 * SECOND
LONG_AGO = NOW - DUPLICATE_WINDOW - 1
AREA = Moving(disc(0, 0, 100))


def make_publication(number: int, by: int, t: int = NOW, x: float = 5.0) -> Publication:
    return Publication(number, by, t, point(x, 0))


def refuses(node: Node, sender: int, message: Message, now: int = NOW) -> None:
    """It does nothing else but to note so."""
    before = state(node)
    assert node.receive(now, sender, message) == [Note("refused", sender)]
    assert state(node) == before


# pSense.


def psense_peer() -> PSensePeer:
    """It has Ann's position, from Ann."""
    peer = PSensePeer(ME, Random(1), PSenseParameters(), Contacts())
    peer.obey(NOW - SECOND, Subscribe(1, AREA))
    peer.receive(NOW, ANN, position(NOW, 10.0, 3))
    assert peer.known_of.seen[ANN].place[0] == 10.0
    return peer


def sighting(t: int, x: float, hops: int) -> layouts.PositionRecord:
    return layouts.PositionRecord(ANN, (x, 0.0, 0.0), 100.0, layouts.sequence_at(t), hops)


def position(t: int, x: float, hops: int) -> psense.Position:
    return psense.Position(layouts.pack_position(sighting(t, x, hops), (ME,), 2))


def psense_publication(t: int, hops: int, publication: Publication) -> psense.PublicationMessage:
    return psense.PublicationMessage(
        layouts.pack_position(sighting(t, 10.0, hops), (ME,), 2), publication
    )


@pytest.mark.parametrize("minutes", [2, 6, 9])  # from five and a half on, numbers wrap around
def test_psense_refuses_states_that_are_minutes_old(minutes: int) -> None:
    peer, then = psense_peer(), NOW - minutes * 60 * SECOND
    old = sighting(then, -50.0, 2)
    refuses(peer, EVE, position(then, -50.0, 2))
    response = layouts.SensorSuggestion(EVE, 0, old, 0)
    refuses(peer, EVE, psense.Response(layouts.pack_response(response, 2)))
    refuses(peer, EVE, psense_publication(then, 2, make_publication(5, ANN)))
    peer.known_of.forget(ANN)  # who has gone is not brought back to life either
    refuses(peer, EVE, position(then, -50.0, 2))


def test_psense_accepts_a_peers_own_position_from_that_peer_alone() -> None:
    peer, later = psense_peer(), NOW + SECOND
    refuses(peer, EVE, position(later, -50.0, 3), later)
    refuses(peer, EVE, psense_publication(later, 3, make_publication(5, ANN, later)), later)
    refuses(peer, EVE, psense.Request(layouts.pack_request(sighting(later, 0.0, 3), 0, 2)), later)
    peer.receive(later, EVE, position(later, 20.0, 2))  # passed on, as everybody may
    assert peer.known_of.seen[ANN].place[0] == 20.0


def test_psense_keeps_the_newer_of_two_recent_positions() -> None:
    peer = psense_peer()
    peer.receive(NOW, EVE, position(NOW - SECOND, -50.0, 2))
    assert peer.known_of.seen[ANN].place[0] == 10.0


def test_psense_refuses_old_publications() -> None:
    refuses(psense_peer(), EVE, psense_publication(NOW, 2, make_publication(5, ANN, LONG_AGO)))


# VON.


def von_peer(*, joined: bool = True) -> von.VonPeer:
    """With Ann as its neighbour; or on its way in, with Ann as its contact."""
    contacts = Contacts()
    if not joined:
        contacts.add(ANN)
    peer = von.VonPeer(ME, Random(1), von.Parameters(), contacts)
    peer.obey(NOW - SECOND, Subscribe(1, AREA))
    if joined:
        peer.receive(NOW, ANN, mesh_messages.Hello(site(ANN, NOW), asks=True))
        assert ANN in peer.mesh.known
    assert peer.mesh.joined == joined
    return peer


def site(node: int, since: int) -> SiteInfo:
    return SiteInfo(node, 10.0, 0.0, 100.0, since)


ANNS = site(ANN, NOW + 1)  # newer than what is known of her
REPLAYED = [
    mesh_messages.Hello(ANNS, asks=True), mesh_messages.Moved(ANNS),
    mesh_messages.EnclosingNeighbours(ANNS,
    (site(BEN, NOW),)),
    mesh_messages.PointOwner(ANNS), mesh_messages.NearestSiteQuery(ANNS),
    mesh_messages.PointOwnerQuery(ANNS, 0.0, 0.0, 1),
    mesh_messages.NearestSiteQuery(site(ANN, LONG_AGO), 3),
    mesh_messages.PointOwnerQuery(site(ANN, LONG_AGO), 0.0, 0.0,
    3),
    mesh_messages.SiteIntroduction((site(ANN, NOW), site(BEN, NOW)), accepted=True),
    mesh_messages.SiteIntroduction((),
    accepted=True),
    von.PublicationMessage(make_publication(5, ANN, LONG_AGO), 1),
    von.Route(make_publication(5, ANN, LONG_AGO), 1),
    von.Cast(make_publication(5, ANN, LONG_AGO), 0.0, 0.0, disc(0, 0, 9), 1),
]  # fmt: skip


@pytest.mark.parametrize("message", REPLAYED, ids=lambda message: type(message).__name__)
def test_von_refuses_what_only_another_may_send_and_what_is_old(message: Any) -> None:
    refuses(von_peer(), EVE, message)


def test_von_is_accepted_by_nobody_who_does_not_name_itself() -> None:
    peer = von_peer(joined=False)
    refuses(
        peer, EVE, mesh_messages.SiteIntroduction((site(ANN, NOW), site(BEN, NOW)), accepted=True)
    )
    peer.receive(
        NOW, ANN, mesh_messages.SiteIntroduction((site(ANN, NOW), site(BEN, NOW)), accepted=True)
    )
    peer.receive(NOW, ANN, mesh_messages.Hello(site(ANN, NOW), asks=False))
    peer.receive(NOW, BEN, mesh_messages.Hello(site(BEN, NOW), asks=False))
    assert peer.mesh.joined


# Relays.


def relays_peer() -> RelayPeer:
    """It has Ann's position, from Ann, and trusts Ben as a neighbour."""
    peer = RelayPeer(ME, Random(1), RelaysParameters(), FIRST_SERVER)
    peer.start(NOW - SECOND)
    peer.obey(NOW - SECOND, Subscribe(1, AREA))
    peer.receive(NOW - SECOND, FIRST_SERVER, NeighbourhoodUpdate((), (), (ANN, BEN), ()))
    effects = peer.receive(NOW, ANN, Update((piece(make_publication(5, ANN), 0),)))
    assert any(isinstance(effect, Deliver) for effect in effects)
    return peer


def piece(publication: Publication, hops: int, source: int = ANN) -> RelayedPublication:
    return RelayedPublication(source, publication, hops, 0)


@pytest.mark.parametrize(
    "replayed",
    [
        piece(make_publication(6, ANN), 0),  # as Ann sends it herself
        piece(make_publication(6, ANN), 0, BEN),  # as if Ben were its source
        piece(make_publication(6, ANN, LONG_AGO), 1),
    ],
)
def test_relays_refuse_replays_even_of_neighbours(replayed: RelayedPublication) -> None:
    refuses(relays_peer(), BEN, Update((replayed,)))


def test_an_old_piece_that_is_passed_on_late_never_overrides_a_newer_place() -> None:
    peer = relays_peer()
    before = list(peer.known(NOW))
    late = make_publication(4, ANN, NOW - 10 * SECOND, x=-50.0)
    effects = peer.receive(NOW, BEN, Update((piece(late, 1),)))
    assert Note("refused", BEN) not in effects  # it may have been under way
    assert list(peer.known(NOW)) == before == [(ANN, (5.0, 0.0, 0.0))]


def test_relays_take_what_is_published_elsewhere_from_the_directory_or_its_author() -> None:
    peer = relays_peer()
    refuses(peer, BEN, Notify(make_publication(6, ANN)))
    refuses(peer, FIRST_SERVER, Notify(make_publication(6, ANN, LONG_AGO)))
    directory = RelayDirectory(FIRST_SERVER, Random(1), 5.0)
    wanted = Subscribe(1, AREA).stamped(BEN, NOW - SECOND)
    directory.receive(NOW - SECOND, BEN, Interest(wanted))
    directory.receive(NOW, EVE, Post(make_publication(3, EVE)))  # from now on it knows Eve
    for replayed in (make_publication(6, ANN), make_publication(6, EVE, LONG_AGO)):
        refuses(directory, EVE, Post(replayed))
    effects = directory.receive(NOW, ANN, Post(make_publication(6, ANN)))
    assert any(
        getattr(effect, "message", None) == Notify(make_publication(6, ANN)) for effect in effects
    )


# Numbers.


def test_whoever_uses_anothers_number_does_not_suppress_what_the_other_publishes() -> None:
    client = client_server.CentralServerClient(ME, Random(1), FIRST_SERVER, SECOND)
    client.obey(NOW - SECOND, Subscribe(1, AREA))
    nodes: list[tuple[Node, int, Any]] = [
        (client, FIRST_SERVER, lambda p: client_server.Notify(p, (1,))),
        (von_peer(), ANN, lambda p: von.PublicationMessage(p, 1)),
        (psense_peer(), ANN, lambda p: psense.PublicationMessage(
            layouts.pack_position(replace_node(p.node), (ME,), 2), p)),
    ]  # fmt: skip
    for node, sender, message_of in nodes:
        for author in (EVE, ANN):
            publication = replace(make_publication(77, ANN), node=author)
            effects = node.receive(NOW, sender, message_of(publication))
            assert [e.publication for e in effects if isinstance(e, Deliver)] == [publication]


def replace_node(node: int) -> layouts.PositionRecord:
    return sighting(NOW, 10.0, 2)._replace(node=node)
