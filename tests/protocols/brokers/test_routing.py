"""Advertisements, interests and publications on their ways between brokers."""

from collections.abc import Callable
from math import nan

import pytest

from nearcast.model.commands import Leave, Move, Publish, Subscribe, Unsubscribe
from nearcast.model.subscription import Filter
from nearcast.protocols import PROTOCOLS
from nearcast.protocols.brokers import KIND
from nearcast.protocols.brokers.interests import EVERYTHING
from nearcast.protocols.brokers.messages import Advertisement
from nearcast.protocols.brokers.parameters import Parameters
from nearcast.protocols.brokers.topology import TOPOLOGIES, line, neighbours, star, tree
from nearcast.space.motion import SECOND, Moving
from nearcast.space.motion import line as walk
from nearcast.space.shapes import box, disc, point
from support.broker_network import B, BrokerNetwork

HERE, THERE = Moving(disc(0, 0, 1)), Moving(disc(100, 0, 1))


def advertise(net: BrokerNetwork, entity: int, *advertisements: Advertisement) -> None:
    client = net.client(entity)
    effects = client.advertise(net.simulation.now, advertisements)
    net.simulation._apply(client, effects)
    net.run(1)


# Trees.


def test_the_topologies_are_what_their_names_say() -> None:
    assert line(4) == [(0, 1), (1, 2), (2, 3)]
    assert star(4) == [(0, 1), (0, 2), (0, 3)]
    assert tree(6) == [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5)]


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("brokers", [1, 2, 3, 10, 33])
def test_every_topology_is_a_tree_of_all(topology: str, brokers: int) -> None:
    beside = neighbours(brokers, TOPOLOGIES[topology](brokers))
    assert sum(map(len, beside)) == 2 * (brokers - 1)


def test_any_tree_will_do_and_nothing_else_will() -> None:
    assert neighbours(4, [(3, 1), (1, 0), (2, 1)]) == [[1], [3, 0, 2], [1], [1]]
    for links, why in [
        ([(0, 1), (1, 2), (2, 0)], "closes a ring"),
        ([(1, 1)], "closes a ring"),
        ([(0, 1)], "not all brokers are linked"),
        ([(0, 1), (1, 3)], "count from 0 to 2"),
    ]:
        with pytest.raises(ValueError, match=why):
            neighbours(3, links)


def test_a_network_of_any_tree_delivers() -> None:
    net = BrokerNetwork((1, 3), brokers=5, links=[(4, 0), (0, 3), (3, 1), (3, 2)])
    net.obey(1, Subscribe(7, HERE))
    net.obey(3, Publish(1, point(0, 0)))
    assert net.delivered() == [(1, 7)]


# Advertisements.


def test_an_advertisement_is_flooded_and_keeps_its_last_hop() -> None:
    net = BrokerNetwork((0,), brokers=4, topology="line")
    hops = [net.broker(k).routes.advertisements[0, 0].hop for k in range(4)]
    assert hops == [0, B[0], B[1], B[2]]
    assert net.kinds()["brokers.Advertise"] == 4


def test_an_interest_goes_only_towards_advertisements_that_it_intersects() -> None:
    net = BrokerNetwork((0, 1, 2, 3), brokers=4, topology="line")
    advertise(net, 0)
    for entity in (1, 2, 3):
        advertise(net, entity, Advertisement(0, entity, box(100.0 * entity, 0, 10, 10)))
    net.obey(0, Subscribe(7, Moving(disc(200, 0, 50))))
    assert [(0, 7) in net.broker(k).routes.entries for k in range(4)] == [True, True, True, False]
    net.obey(3, Subscribe(8, Moving(disc(500, 0, 50))))
    assert [(3, 8) in net.broker(k).routes.entries for k in range(4)] == [False] * 3 + [True]
    net.obey(2, Publish(1, point(205, 0)))
    assert net.delivered() == [(1, 7)]


def test_an_interest_follows_where_later_advertisements_lead() -> None:
    net = BrokerNetwork((0, 3), brokers=4, topology="line")
    advertise(net, 0)
    advertise(net, 3)
    net.obey(0, Subscribe(7, HERE))
    assert len(net.broker(3).routes.entries) == 0
    advertise(net, 3, Advertisement(5, 3, box(0, 0, 9, 9)))
    assert (0, 7) in net.broker(3).routes.entries
    advertise(net, 3, Advertisement(5, 3, box(500, 0, 9, 9)))
    assert len(net.broker(3).routes.entries) == 0
    assert list(net.broker(0).routes.entries) == [(0, 7)]


def test_an_advertisement_by_predicate_leads_only_those_who_could_want_it() -> None:
    net = BrokerNetwork((0, 1), brokers=2)
    advertise(net, 0, Advertisement(0, 0, filter=Filter('symbol == "A", price < 50')))
    for number, text in enumerate(
        ['symbol == "B"', "price > 60", 'symbol == "A", price > t', "price > 40"]
    ):
        net.obey(1, Subscribe(number, EVERYTHING, Filter(text)))
    assert [number for _, number in net.broker(0).routes.entries] == [2, 3]
    net.obey(0, Publish(1, point(0, 0), attributes={"symbol": "A", "price": 45}))
    assert sorted(net.delivered()) == [(1, 2), (1, 3)]


@pytest.mark.parametrize(
    ("publish", "conforms"),
    [
        (Publish(1, point(10, -10)), True),
        (Publish(1, box(5, 5, 5, 5)), True),
        (Publish(1, box(5, 5, 6, 5)), False),
        (Publish(1, point(10.001, 0)), False),
        (Publish(1, disc(5, 0, 1)), False),  # a ball: it rises out of the flat area
        (Publish(1, point(0, 0), "chat"), False),
    ],
)
def test_what_was_not_advertised_is_refused(publish: Publish, conforms: bool) -> None:
    net = BrokerNetwork((0, 1), brokers=2)
    advertise(net, 0, Advertisement(0, 0, box(0, 0, 10, 10), ""))
    net.obey(1, Subscribe(7, EVERYTHING))
    net.obey(1, Subscribe(8, EVERYTHING, channel="chat"))
    net.obey(0, publish)
    assert bool(net.delivered()) == conforms
    assert net.notes("refused") == ([] if conforms else [(B[0], 1)])


def test_a_client_that_advertises_its_surroundings_advertises_anew_when_it_leaves_them() -> None:
    net = BrokerNetwork((0, 1), brokers=2, advertise=10.0, delay=1000)
    net.obey(1, Subscribe(7, Moving(disc(0, 0, 12))), then=SECOND)
    net.obey(1, Subscribe(8, Moving(disc(35, 0, 12))), then=SECOND)
    for number, x in enumerate([0.0, 5.0, 10.0, 30.0, 31.0]):
        net.obey(0, Publish(number, point(x, 0)), then=SECOND)
    area = net.broker(1).routes.advertisements[0, 0].advertisement.area
    assert (area.x, area.rx) == (30.0, 10.0)
    assert net.notes("refused") == []
    # The first one from a new place runs ahead of the interests that come towards it.
    assert net.delivered() == [(1, 7), (2, 7), (4, 8)]
    assert list(net.broker(0).routes.entries) == [(1, 8)]


# Interests.


def test_an_interest_is_sent_once_per_neighbour_however_many_advertise_there() -> None:
    net = BrokerNetwork((0, *range(3, 40, 4)), brokers=4, topology="line")
    before = net.simulation.now
    net.obey(0, Subscribe(7, HERE))
    assert net.kinds(before)["brokers.Interest"] == 4  # the client's own, and three links


def test_a_move_is_an_unsubscription_and_a_subscription() -> None:
    net = BrokerNetwork((0, 3), brokers=4, topology="line")
    net.obey(0, Subscribe(7, HERE))
    before = net.simulation.now
    net.obey(0, Move(7, THERE))
    assert net.kinds(before) == {"brokers.Cancel": 4, "brokers.Interest": 4}
    net.obey(3, Publish(1, point(0, 0)))
    net.obey(3, Publish(2, point(100, 0)))
    assert net.delivered() == [(2, 7)]


def test_an_evolving_interest_is_sent_once_per_move() -> None:
    net = BrokerNetwork((0, 3), brokers=4, topology="line", heartbeat_ms=0.0)
    net.obey(0, Subscribe(7, walk(disc(0, 0, 1), (50.0, 0.0, 0.0), 1.0)))
    before = net.simulation.now
    net.run(40 * SECOND)
    assert net.kinds(before) == {}
    net.obey(3, Publish(1, point(40, 0)))
    net.obey(3, Publish(2, point(0, 0)))
    assert net.delivered() == [(1, 7)]


def test_after_unsubscribing_nothing_is_delivered_and_tables_are_empty() -> None:
    net = BrokerNetwork((0, 3), brokers=4, topology="line")
    net.obey(0, Subscribe(7, HERE))
    net.obey(0, Unsubscribe(7))
    before = net.simulation.now
    net.obey(3, Publish(1, point(0, 0)))
    assert net.kinds(before) == {"brokers.Post": 1}
    assert net.delivered() == []
    assert all(not net.broker(k).routes.entries for k in range(4))
    assert all(not sent for k in range(4) for sent in net.broker(k).routes.forwarded.values())


def test_what_is_under_way_at_an_unsubscribe_is_delivered_if_it_was_wanted_then() -> None:
    net = BrokerNetwork((0, 1), brokers=2, delay=1000)
    net.obey(0, Subscribe(7, HERE), then=SECOND)
    net.obey(1, Publish(1, point(0, 0)), then=1500)
    net.obey(0, Unsubscribe(7), then=0)
    net.obey(1, Publish(2, point(0, 0)), then=SECOND)
    assert net.delivered() == [(1, 7)]
    assert [
        row["publication"] for row in net.rows("messages") if row["kind"] == "brokers.Pass"
    ] == [1, 2]


def test_a_client_that_leaves_leaves_no_entries() -> None:
    net = BrokerNetwork((0, 3), brokers=4, topology="line")
    net.obey(0, Subscribe(7, HERE))
    net.obey(0, Leave())
    for k in range(4):
        assert net.broker(k).routes.entries == {}
        assert list(net.broker(k).routes.advertisements) == [(3, 0)]
    assert net.broker(0).clients == {}


# Covering.

LARGE, SMALL, TINY = (Moving(box(0, 0, r, r)) for r in (9.0, 5.0, 1.0))


def sent_interests(net: BrokerNetwork) -> list[int]:
    """Subscriptions that the first broker has sent to the second."""
    return sorted(number for _, number in net.broker(0).routes.forwarded[B[1]])


@pytest.mark.parametrize(
    ("covering", "after_growing", "after_shrinking"),
    [("off", [1, 2, 3], [1, 2]), ("lazy", [1, 2, 3], [1, 2]), ("active", [3], [2])],
)
def test_covering_as_interests_grow_and_the_largest_ends(
    covering: str, after_growing: list[int], after_shrinking: list[int]
) -> None:
    net = BrokerNetwork((0, 1), brokers=2, covering=covering)
    for number, region in ((1, TINY), (2, SMALL), (3, LARGE)):
        net.obey(0, Subscribe(number, region))
    assert sent_interests(net) == after_growing
    net.obey(0, Unsubscribe(3))
    assert sent_interests(net) == after_shrinking
    net.obey(1, Publish(1, point(0, 0)))
    assert sorted(net.delivered()) == [(1, 1), (1, 2)]


@pytest.mark.parametrize(
    ("covering", "all_three", "two", "one"),
    [("off", [1, 2, 3], [2, 3], [3]), ("lazy", [1], [2], [3]), ("active", [1], [2], [3])],
)
def test_covering_as_interests_shrink_and_the_largest_ends(
    covering: str, all_three: list[int], two: list[int], one: list[int]
) -> None:
    net = BrokerNetwork((0, 1), brokers=2, covering=covering)
    for number, region in ((1, LARGE), (2, SMALL), (3, TINY)):
        net.obey(0, Subscribe(number, region))
    assert sent_interests(net) == all_three
    net.obey(0, Move(1, THERE))
    assert sent_interests(net) == sorted([1, *two])
    net.obey(0, Unsubscribe(1))
    assert sent_interests(net) == two
    net.obey(0, Unsubscribe(2))
    assert sent_interests(net) == one
    net.obey(1, Publish(1, point(0, 0)))
    assert net.delivered() == [(1, 3)]


@pytest.mark.parametrize("covering", ["lazy", "active"])
def test_what_was_covered_is_sent_when_its_cover_is_adjusted_away(covering: str) -> None:
    net = BrokerNetwork(
        (0, 1), brokers=2, covering=covering, interest="parametric", heartbeat_ms=0.0
    )
    net.obey(0, Subscribe(1, LARGE))
    net.obey(0, Subscribe(2, SMALL))
    assert sent_interests(net) == [1]
    before = net.simulation.now
    net.obey(0, Move(1, Moving(box(100, 0, 9, 9))))
    assert net.kinds(before) == {"brokers.Adjust": 2, "brokers.Interest": 1}
    assert sent_interests(net) == [1, 2]
    net.obey(0, Move(1, LARGE))
    assert sent_interests(net) == ([1] if covering == "active" else [1, 2])
    net.obey(1, Publish(1, point(0, 0)))
    assert sorted(net.delivered()) == [(1, 1), (1, 2)]


# Parameters and the deployment.


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"brokers": 0}, "brokers must be between 1 and 10,000, not 0"),
        ({"topology": "ring"}, "topology must be one of line, star, tree, not 'ring'"),
        ({"attach": 5}, "attach must be between -1 and 4, not 5"),
        ({"covering": "greedy"}, "covering must be one of off, lazy, active, not 'greedy'"),
        ({"matcher": "magic"}, "matcher must be one of "),
        ({"evolving": "magic"}, "evolving must be one of resubscribe, "),
        ({"interest": "magic"}, "interest must be one of area, parametric, tile, object, not"),
        ({"interval_ms": 0.0}, "interval_ms must be between"),
        ({"threshold_ms": nan}, "threshold_ms must be between"),
        ({"stamp": "never"}, "stamp must be one of travels, arrival, not 'never'"),
        ({"moment": "never"}, "moment must be one of publication, arrival, not 'never'"),
        ({"skew_ms": -1.0}, "skew_ms must be between"),
        ({"advertise": -1.0}, "advertise must be between"),
        ({"tile": 0.0}, "tile must be between"),
        ({"heartbeat_ms": 0.5}, "heartbeat_ms must be between"),
        ({"misses": 0}, "misses must be between"),
        ({"memory_s": 0.0}, "memory_s must be between"),
    ],
)
def test_impossible_parameters_are_refused(chosen: dict[str, object], words: str) -> None:
    make: Callable[..., Parameters] = Parameters
    with pytest.raises(ValueError) as refusal:
        make(**chosen)
    assert words in str(refusal.value)


def test_clients_attach_to_their_number_modulo_the_brokers_or_to_the_one_chosen() -> None:
    assert PROTOCOLS["brokers"] is KIND
    spread = BrokerNetwork(range(6), brokers=3)
    assert [list(spread.broker(k).clients) for k in range(3)] == [[0, 3], [1, 4], [2, 5]]
    together = BrokerNetwork(range(6), brokers=3, attach=1)
    assert [len(together.broker(k).clients) for k in range(3)] == [0, 6, 0]
