"""Publications between nodes: to whom they go, in which way, and what they take along."""

from random import Random

import numpy as np
import pytest

from nearcast.client_protocol import messages
from nearcast.client_protocol.limits import Limits
from nearcast.matching import MATCHERS
from nearcast.model.subscription import NodeId
from nearcast.node import Message, Outbox
from nearcast.protocols.voronoi.site import Site
from nearcast.protocols.voronoi.vso.parameters import Parameters
from nearcast.service.cluster.messages import (
    CLIENTS_ONLY,
    PREVIOUS_OWNER,
    TO_OWNER,
    CountReply,
    CountRequest,
    PublicationBatch,
    RemotePublication,
    mode_code,
    mode_of,
)
from nearcast.service.cluster.realm import ClusterRealm
from nearcast.service.cluster.recent_history import PastFlush, SubscriptionVersion
from nearcast.service.cluster.remote_subscriptions import (
    RemoteSubscriptions,
    first_number,
    record_of,
)
from nearcast.service.cluster.routing import Routing
from nearcast.space.motion import FOREVER, SECOND
from support.cluster_flushes import (
    ELSEWHERE,
    ME,
    THERE,
    accepted_publications,
    homes,
    passed,
    put,
    wanted,
)


class RouterHarness:
    """The routing of a node whose site is not in the mesh yet: its contact speaks for it."""

    def __init__(self) -> None:
        self._out = Outbox()
        site = Site(ME, Outbox(), Random(1), lambda: 0, Parameters())
        site.join((0.0, 0.0), THERE, THERE)
        self.realm = ClusterRealm(MATCHERS["swept"](), Limits(), None, first_number(ME))
        self.remote_subscriptions = RemoteSubscriptions()
        self.router = Routing(
            self.realm, lambda: site, self.remote_subscriptions, self._out,
            lambda: (THERE, ELSEWHERE),
        )  # fmt: skip

    def flush(self, flushed: PastFlush, own: int) -> list[tuple[NodeId, Message]]:
        self.realm.history.add(flushed)
        self.router.route_flush(flushed, own)
        return self.taken()

    def taken(self) -> list[tuple[NodeId, Message]]:
        return [(effect.to, effect.message) for effect in self._out.drain()]


def test_what_is_said_at_a_node_whose_site_is_in_no_mesh_goes_to_who_speaks_for_it() -> None:
    ((to, what),) = RouterHarness().flush(passed(5, (5, 1.0, 2.0)), own=1)
    assert to == THERE
    assert isinstance(what, PublicationBatch)
    assert [(one.x, one.y) for one in what.publications] == [(1.0, 2.0)]


@pytest.mark.parametrize("way", [TO_OWNER, PREVIOUS_OWNER])
def test_what_comes_back_to_where_it_was_made_is_looked_after_there_once(way: int) -> None:
    harness = RouterHarness()
    record = record_of(ELSEWHERE, wanted(21, 0.0), 1, 0)
    harness.remote_subscriptions.put(1, record, ELSEWHERE)
    ((to, batch),) = harness.flush(passed(5, (5, 1.0, 2.0)), own=1)
    assert to == THERE, "it is not for us to know who else wants it"
    assert isinstance(batch, PublicationBatch)
    harness.router.receive(PublicationBatch(bytes((mode_code(way, 2),)), batch.publications), THERE)
    sent = harness.taken()
    assert (ELSEWHERE, PublicationBatch(bytes((CLIENTS_ONLY,)), batch.publications)) in sent
    assert any(to == THERE for to, _ in sent) == (way == TO_OWNER)
    harness.router.receive(PublicationBatch(bytes((mode_code(way, 4),)), batch.publications), THERE)
    assert harness.taken() == []


def test_what_comes_back_of_several_flushes_is_found_in_each_of_them() -> None:
    harness = RouterHarness()
    harness.remote_subscriptions.put(1, record_of(ELSEWHERE, wanted(21, 0.0), 1, 0), ELSEWHERE)
    both = []
    for flushed in (passed(5, (5, 1.0, 2.0)), passed(6, (6, 3.0, 2.0), (6, 500.0, 2.0))):
        ((_, batch),) = harness.flush(flushed, own=len(flushed.ids))
        assert isinstance(batch, PublicationBatch)
        both += batch.publications
    harness.router.receive(
        PublicationBatch(bytes((mode_code(TO_OWNER, 2),)) * 3, tuple(both)), THERE
    )
    heard = {x for to, _, xs in told(harness.taken()) if to == ELSEWHERE for x in xs}
    assert {1.0, 3.0} <= heard


def told(sent: list[tuple[NodeId, Message]]) -> list[tuple[NodeId, int, list[float]]]:
    """To whom, in which way (of a message whose publications all go the same), and which."""
    found = []
    for to, what in sent:
        assert isinstance(what, PublicationBatch)
        pairs = [
            (mode_of(code), one.x) for code, one in zip(what.codes, what.publications, strict=True)
        ]
        modes = dict.fromkeys(mode for mode, _ in pairs)
        found += [(to, mode, [x for m, x in pairs if m == mode]) for mode in modes]
    return found


def test_what_goes_another_way_than_what_was_said_before_is_not_overtaken_by_it() -> None:
    harness = RouterHarness()
    harness.remote_subscriptions.on_client_moved(
        1, ELSEWHERE, SubscriptionVersion(wanted(21, 50.0), 1, FOREVER)
    )  # this client went there
    assert told(harness.flush(passed(5, (5, 1.0, 0.0)), own=1)) == [(THERE, TO_OWNER, [1.0])]
    assert told(harness.flush(passed(6, (6, 50.0, 0.0)), own=1)) == [
        (THERE, TO_OWNER, [50.0]), (ELSEWHERE, CLIENTS_ONLY, [1.0, 50.0]),
    ]  # fmt: skip
    assert told(harness.flush(passed(7, (7, 51.0, 0.0)), own=1)) == [
        (THERE, TO_OWNER, [51.0]), (ELSEWHERE, CLIENTS_ONLY, [51.0]),
    ], "what went before has gone there, too"  # fmt: skip
    assert told(harness.flush(passed(8, (8, 500.0, 0.0)), own=1)) == [(THERE, TO_OWNER, [500.0])]
    assert told(harness.flush(passed(9, (9, 52.0, 0.0)), own=1)) == [
        (THERE, TO_OWNER, [52.0]), (ELSEWHERE, CLIENTS_ONLY, [500.0, 52.0]),
    ]  # fmt: skip


def test_of_two_words_at_one_moment_the_second_does_not_go_without_the_first() -> None:
    harness = RouterHarness()
    harness.remote_subscriptions.on_client_moved(
        1, ELSEWHERE, SubscriptionVersion(wanted(21, 50.0), 1, FOREVER)
    )
    assert told(harness.flush(passed(5, (5, 1.0, 0.0), (5, 50.0, 0.0)), own=2)) == [
        (THERE, TO_OWNER, [1.0, 50.0]), (ELSEWHERE, CLIENTS_ONLY, [1.0, 50.0]),
    ]  # fmt: skip


def test_an_interest_that_is_known_late_hears_what_was_said_before_what_it_wants() -> None:
    harness = RouterHarness()
    harness.flush(passed(5, (5, 1.0, 0.0)), own=1)
    harness.flush(passed(6, (6, 50.0, 0.0)), own=1)
    harness.realm.history.columns.routed[:] = 1
    harness.remote_subscriptions.put(7, record_of(ELSEWHERE, wanted(21, 50.0), 6, 0), ELSEWHERE)
    harness.router.send_missed(7, harness.realm.history.flushes)
    assert told(harness.taken()) == [(ELSEWHERE, CLIENTS_ONLY, [1.0, 50.0])]


def test_who_goes_to_speak_elsewhere_is_preceded_by_what_it_said_lately() -> None:
    harness = RouterHarness()
    harness.flush(passed(5, (5, 1.0, 0.0)), own=1)
    harness.flush(passed(3 * SECOND, (3 * SECOND, 2.0, 0.0)), own=1)
    harness.router.send_recent_to(9, ELSEWHERE)
    assert told(harness.taken()) == [(ELSEWHERE, PREVIOUS_OWNER, [2.0])]
    harness.router.send_recent_to(9, ELSEWHERE)
    assert harness.taken() == []


def test_who_has_gone_is_told_by_its_site_once_that_knows_where_it_is() -> None:
    remote_subscriptions = RemoteSubscriptions()
    gone = wanted(21, 50.0)
    remote_subscriptions.on_client_moved(5, ELSEWHERE, SubscriptionVersion(gone, 1, FOREVER))
    _, publications = accepted_publications((10, 50.0, 0.0), (30, 50.0, 0.0))
    here, there = np.ones(2, np.bool_), np.zeros(2, np.bool_)
    assert remote_subscriptions.match_moved(publications, here)[0].tolist() == [0, 1]
    put(remote_subscriptions, 20, 21, 50.0, 20, ELSEWHERE)
    assert remote_subscriptions.match_moved(publications, here)[0].tolist() == [0], (
        "as it was before"
    )
    assert remote_subscriptions.match_moved(publications, there)[0].tolist() == [0, 1], (
        "others may not know yet"
    )
    assert remote_subscriptions.match_homes(publications, np.arange(2))[0].tolist() == [0, 1]


def test_who_has_come_here_is_not_told_of_on_its_former_node() -> None:
    remote_subscriptions = RemoteSubscriptions()
    put(remote_subscriptions, 20, 21, 50.0, 20, ELSEWHERE)
    remote_subscriptions.drop(30, 21, arrived=True)
    assert homes(remote_subscriptions, (40, 50.0, 0.0)) == []


def test_who_asks_how_many_heard_it_is_answered_while_publications_of_clients_wait() -> None:
    harness = RouterHarness()
    realm, asked = harness.realm, RemotePublication(first_number(THERE), 77, 5, False, 1.0, 2.0)
    client = realm.join(1, "ann")
    realm.accounts.bound = 1
    for t in (2, 3):  # first its price becomes known
        for _ in range(3):
            realm.publish(client, messages.PublishRequest(0.0, 0.0), messages.JSON)
        harness.router.receive(CountRequest((asked,)), THERE)
        realm.flush(t)
    assert realm.waiting > 0
    harness.router.answer_counts()
    assert (THERE, CountReply(((asked.id, 0),))) in harness.taken()
