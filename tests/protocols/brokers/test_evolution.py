"""Subscribers choose how brokers follow their subscriptions, side by side in one broker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nearcast.model.commands import Move, Publish, Subscribe, Unsubscribe
from nearcast.model.evolution import Evolution
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import disc, point
from support.broker_network import BrokerNetwork
from support.evolving_cases import evolving
from support.examples import examples
from support.strategies import ATTRIBUTES, regions, shapes

ENTITIES = (1, 2, 3)
PUBLISHER = 9
# A subscription's number says what its subscriber chose, and the settings that give all the same.
EI, TT = SECOND // 4, SECOND // 5
CHOICES: list[tuple[Evolution | None, dict[str, object]]] = [
    (None, {"evolving": "scan"}),
    (Evolution("periodic", EI), {"evolving": "periodic", "interval_ms": EI / 1000}),
    (Evolution("lazy"), {"evolving": "lazy"}),
    (Evolution("cached", TT), {"evolving": "cached", "threshold_ms": TT / 1000}),
    (Evolution("swept"), {"evolving": "swept"}),
]
EXACT = (0, 2, 4)
PAUSES = st.sampled_from([0, 10_000, 60_000, 150_000, 400_000, SECOND])
WIDE = st.builds(disc, st.floats(-9, 9), st.floats(-9, 9), st.floats(0, 30))
PUBLISHING = st.builds(
    lambda shape, channel, attributes: Publish(0, shape, channel, attributes),
    WIDE | shapes(2), st.sampled_from(["", "", "chat"]), ATTRIBUTES,
)  # fmt: skip
LIVES = st.lists(
    st.tuples(
        PAUSES,
        st.sampled_from(ENTITIES),
        st.integers(0, len(CHOICES) - 1),
        st.one_of(evolving(2), st.builds(Move, st.just(0), regions(2)), *[PUBLISHING] * 3),
    ),
    min_size=8,
    max_size=25,
)


def play(net: BrokerNetwork, lives: list, chosen: range | list[int], named: bool) -> None:
    """`chosen`: only these subscriptions exist. `named`: their subscribers say how."""
    for number, (pause, node, choice, act) in enumerate(lives):
        net.run(pause)
        mine = node * 10 + choice
        if isinstance(act, Publish):
            net.obey(PUBLISHER, replace(act, publication=number))
        elif choice not in chosen:
            net.run(1)
        elif isinstance(act, Move):
            net.obey(node, replace(act, subscription=mine))
        else:
            how = CHOICES[choice][0] if named else None
            net.obey(
                node, Subscribe(mine, act.region, act.filter, act.channel, act.echo, evolution=how)
            )
    net.run(SECOND)


@examples(40)
@given(lives=LIVES, delay=st.sampled_from([0, 20_000]))
def test_a_broker_delivers_the_union_of_what_brokers_with_one_engine_deliver(
    lives: list, delay: int
) -> None:
    everyone = (*ENTITIES, PUBLISHER)
    mixed = BrokerNetwork(everyone, delay, brokers=1, heartbeat_ms=0.0)
    play(mixed, lives, range(len(CHOICES)), named=True)
    union = []
    for choice, (_, settings) in enumerate(CHOICES):
        alone = BrokerNetwork(everyone, delay, brokers=1, heartbeat_ms=0.0, **settings)
        play(alone, lives, [choice], named=False)
        union += alone.delivered()
    assert sorted(mixed.delivered()) == sorted(union)


@examples(25)
@given(
    lives=LIVES,
    brokers=st.integers(1, 4),
    covering=st.sampled_from(["off", "lazy", "active"]),
    interest=st.sampled_from(["area", "parametric"]),
    evolving_=st.sampled_from(["scan", "resubscribe", "periodic"]),
)
def test_exact_choices_are_exact_in_every_network(
    lives: list, brokers: int, covering: str, interest: str, evolving_: str
) -> None:
    """Whatever the brokers do by themselves, and whatever others beside them choose."""
    net = BrokerNetwork(
        (*ENTITIES, PUBLISHER), brokers=brokers, covering=covering, interest=interest,
        evolving=evolving_, heartbeat_ms=0.0,
    )  # fmt: skip
    play(net, lives, range(len(CHOICES)), named=True)
    exact = {node * 10 + choice for node in ENTITIES for choice in EXACT[1:]}
    assert sorted(d for d in net.delivered() if d[1] in exact) == sorted(
        d for d in net.should() if d[1] in exact
    )


def test_an_interval_of_its_own_is_how_stale_a_subscription_becomes() -> None:
    net = BrokerNetwork((1, PUBLISHER), brokers=3, topology="line")
    start = net.simulation.now
    going = Moving(disc(0, 0, 1), (10.0, 0.0, 0.0))
    for number, tenths in ((1, 2), (2, 10), (3, 50)):
        how = Evolution("periodic", tenths * SECOND // 10)
        net.obey(1, Subscribe(number, going, evolution=how), then=0)
    net.run(start + SECOND + SECOND // 10 - net.simulation.now)
    for number, x in enumerate((11.0, 10.0, 0.0)):  # as of now, of the last second, of the start
        net.obey(PUBLISHER, Publish(number, point(x, 0)))
    assert sorted(net.delivered()) == [(0, 1), (0, 2), (1, 1), (1, 2), (2, 3)]
    broker = net.simulation.nodes[FIRST_SERVER]
    assert broker.matcher.count("evaluations") >= 5 + 1 + 1


@pytest.mark.parametrize("interest", ["tile", "object"])
def test_with_topics_the_client_itself_decides_exactly(interest: str) -> None:
    net = BrokerNetwork((1, PUBLISHER), brokers=2, interest=interest, interval_ms=100.0)
    going = Moving(disc(0, 0, 1), (10.0, 0.0, 0.0))
    net.obey(1, Subscribe(1, going, evolution=Evolution("periodic", 9 * SECOND)), then=0)
    begun = net.simulation.now
    for number in range(30):
        x = 10.0 * (net.simulation.now - begun) / SECOND
        net.obey(PUBLISHER, Publish(number, point(x, 0)), then=SECOND // 10)
        net.obey(PUBLISHER, Publish(100 + number, point(x - 3.0, 0)), then=0)
    delivered = [publication for publication, _ in net.delivered()]
    assert len(delivered) > 10
    assert max(delivered) < 100


def test_a_choice_ends_with_its_subscription_and_another_may_follow() -> None:
    net = BrokerNetwork((1, PUBLISHER), brokers=2)
    here = Moving(disc(0, 0, 1))
    net.obey(1, Subscribe(1, here, evolution=Evolution("periodic", SECOND)))
    net.obey(1, Unsubscribe(1))
    net.obey(PUBLISHER, Publish(1, point(0, 0)))
    net.obey(1, Subscribe(2, here, evolution=Evolution("cached", 0)))
    net.obey(1, Subscribe(2, here, evolution=Evolution("lazy")))
    net.obey(PUBLISHER, Publish(2, point(0, 0)))
    assert net.delivered() == [(2, 2)]
