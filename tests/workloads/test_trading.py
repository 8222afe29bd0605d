"""Traders who want quotes within a band that moves as they expect."""

from itertools import islice, pairwise, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model import predicates
from nearcast.model.commands import Publish, Subscribe
from nearcast.space.motion import SECOND, Time
from nearcast.workloads import WORKLOADS
from nearcast.workloads.trading import EVERYTHING, TICK, Market, Parameters, make
from nearcast.workloads.workload import NUMBERS, Scheduled, first_id
from support.examples import examples


def market(entities: int = 20, seed: int = 1, **chosen: object) -> Market:
    made = make(Parameters(**chosen), entities, 60.0, seed)
    assert isinstance(made, Market)
    return made


def minute(traded: Market, entity: int, stay: int = 0, begins: Time = 0) -> list[Scheduled]:
    commands = traded.life(entity, stay, begins).commands()
    return list(takewhile(lambda scheduled: scheduled[0] < begins + 60 * SECOND, commands))


@examples(40)
@given(
    symbols=st.integers(3, 10),
    watched=st.integers(1, 3),
    by=st.sampled_from(["attribute", "channel"]),
    forecast=st.floats(0.01, 20),
    rate=st.floats(0.1, 50),
    life=st.tuples(st.integers(0, 30), st.integers(0, 3), st.integers(0, 3 * SECOND)),
)
def test_a_script_satisfies_the_contract_of_every_workload(
    life: tuple[int, int, Time], **chosen: object
) -> None:
    traded = market(**chosen)
    commands = list(islice(traded.life(*life).commands(), 120))
    kinds = [(t, isinstance(command, Publish)) for t, command in commands]
    assert kinds == sorted(kinds)
    assert kinds[0] == (life[2], False)
    assert list(islice(traded.life(*life).commands(), 120)) == commands
    low = first_id(life[0], life[1])
    watched = {c.subscription for _, c in commands if isinstance(c, Subscribe)}
    quoted = [c.publication for _, c in commands if isinstance(c, Publish)]
    assert watched == {low + k for k in range(int(str(chosen["watched"])))}
    assert quoted == list(range(low + len(watched), low + len(watched) + len(quoted)))
    assert max(quoted, default=0) < low + NUMBERS
    for name in watched:
        moments = [t for t, c in commands if isinstance(c, Subscribe) and c.subscription == name]
        assert moments == sorted(set(moments)), "at most one word per moment"


@pytest.mark.parametrize("by", ["attribute", "channel"])
def test_bands_begin_around_the_price_of_the_moment_and_drift(by: str) -> None:
    traded = market(by=by, band=3.0, drift=0.5, forecast=10.0, watched=2)
    subscribed = [(t, c) for t, c in minute(traded, 4) if isinstance(c, Subscribe)]
    assert [t for t, _ in subscribed] == [10 * SECOND * (k // 2) for k in range(12)]
    drifts = set()
    for t, command in subscribed:
        assert command.region == EVERYTHING
        assert command.filter is not None
        parsed = predicates.parse(command.filter.text)
        assert parsed.evolves
        symbol = command.channel if by == "channel" else parsed.items[0].expression.value
        price = traded.price(int(symbol[1:]), t)
        quote = {"symbol": symbol, "price": price}
        assert predicates.accepts(parsed, quote, 0.0)
        assert predicates.accepts(parsed, quote | {"price": price + 2.999}, 0.0)
        assert not predicates.accepts(parsed, quote | {"price": price - 3.001}, 0.0)
        assert not predicates.accepts(parsed, quote | {"price": price + 3.001}, 0.0)
        if by == "attribute":
            assert not predicates.accepts(parsed, quote | {"symbol": "S999"}, 0.0)
        drifts.add(command.filter.text)
    assert len(drifts) == len(subscribed)


def test_all_who_quote_a_symbol_quote_one_price_which_walks() -> None:
    traded = market(symbols=5, volatility=2.0)
    quotes: dict[tuple[str, int], set[float]] = {}
    for entity in (3, 8, 13):
        for t, command in minute(traded, entity):
            if isinstance(command, Publish):
                assert command.attributes["symbol"] == "S3"
                price = command.attributes["price"]
                quotes.setdefault(("S3", t // TICK), set()).add(float(price))
    assert all(len(prices) == 1 for prices in quotes.values())
    walk = [traded.price(3, t) for t in range(0, 60 * SECOND, SECOND)]
    assert walk[0] == 100.0
    steps = [b - a for a, b in pairwise(walk)]
    assert 1.0 < (sum(step * step for step in steps) / len(steps)) ** 0.5 < 3.5
    assert traded.price(3, 0) == 100.0, "looking back changes nothing"
    assert market(symbols=5, volatility=2.0).price(3, 50 * SECOND) == walk[50]


def test_quotes_come_at_the_rate_and_size_that_were_set() -> None:
    published = [c for _, c in minute(market(rate=8.0, payload=5), 4) if isinstance(c, Publish)]
    assert len(published) in (479, 480)
    assert all(command.payload == bytes(5) for command in published)
    loud = [c for _, c in minute(market(by="channel"), 4) if isinstance(c, Publish)]
    assert {command.channel for command in loud} == {"S4"}
    assert all(list(command.attributes) == ["price"] for command in loud)


def test_a_market_does_not_depend_on_the_order_of_entities_and_differs_by_seed() -> None:
    traded = market()
    minute(traded, 9)
    assert minute(traded, 3) == minute(market(), 3)
    assert minute(market(seed=2), 3) != minute(market(), 3)
    assert minute(market(), 3, stay=1) != minute(market(), 3)


def test_the_market_is_registered_and_all_positions_are_the_origin() -> None:
    assert WORKLOADS["trading"].parameters is Parameters
    traded = market(7)
    assert traded.entities == 7
    assert traded.world == ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    assert traded.life(3, 0, 0).position(5 * SECOND) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"symbols": 0}, "symbols must be between"),
        ({"symbols": 3, "watched": 4}, "watched must be between 1 and 3, not 4"),
        ({"by": "name"}, "by must be one of attribute, channel, not 'name'"),
        ({"price": 0.0}, "price must be between"),
        ({"volatility": -1.0}, "volatility must be between"),
        ({"band": -1.0}, "band must be between"),
        ({"drift": float("nan")}, "drift must be between"),
        ({"forecast": 0.0}, "forecast must be between"),
        ({"rate": 0.0}, "rate must be between"),
        ({"payload": -1}, "payload must be between"),
    ],
)
def test_invalid_parameters_are_refused(chosen: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Parameters(**chosen)


def test_a_market_with_more_quotes_than_identifiers_is_refused() -> None:
    with pytest.raises(ValueError, match="lower the rate"):
        make(Parameters(rate=100.0), 3, 1e6, 1)
