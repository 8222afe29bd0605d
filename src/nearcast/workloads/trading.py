"""Predictive trading: interests in a price band that moves as its trader expects ([Evolving] 1).

Every entity quotes one symbol and watches some. A symbol's price is a random walk, the same for
all who quote it. A trader forecasts a drift for each symbol it watches and wants the quotes within
a band around the forecast, `price >= 97.2 + 0.4 * t, price <= 101.2 + 0.4 * t`; after a while it
looks at the price and forecasts anew. Symbols are an attribute of quotes or their channel. Place
means nothing here: everybody is at the origin and wants to hear from everywhere.
"""

from collections.abc import Iterator
from heapq import merge
from itertools import count
from math import ceil
from random import Random

from msgspec import Struct

from nearcast.field_checks import between, one_of
from nearcast.model.commands import Command, Publish, Subscribe
from nearcast.model.subscription import Filter, NodeId
from nearcast.scenario import stream
from nearcast.space.motion import SECOND, Moving, Time
from nearcast.space.shapes import EVERYWHERE, Vector, point
from nearcast.workloads.workload import Scheduled, Workload, first_id, fits_identifiers

TICK: Time = SECOND // 10  # how often a price changes
EVERYTHING = Moving(EVERYWHERE)
ORIGIN: Vector = (0.0, 0.0, 0.0)


class Parameters(Struct, frozen=True, kw_only=True):
    """What can be set for the workload trading."""

    # Different symbols, 1 to 100,000; fewer traders watch each of them as there are more.
    symbols: int = 20
    # Symbols that an entity watches, 1 to 100 (and to `symbols`): so many subscriptions each.
    watched: int = 2
    # attribute or channel: where a quote's symbol is.
    by: str = "attribute"
    # Price at the beginning, above 0 to 1e9.
    price: float = 100.0
    # Standard deviation of a price's change in one second, 0 to 1e6; bands are left sooner.
    volatility: float = 1.0
    # Half the width of a band, 0 to 1e9; more quotes are wanted as it grows.
    band: float = 2.0
    # Largest forecast change of a price per second, 0 to 1e6; bands evolve faster.
    drift: float = 0.5
    # Seconds between two forecasts of a trader, 0.001 to 1e6; interests are said less often.
    forecast: float = 10.0
    # Quotes per second and entity, above 0 to 1,000; all traffic grows with it.
    rate: float = 2.0
    # Bytes that a quote carries, 0 to 1,000,000.
    payload: int = 16

    def __post_init__(self) -> None:
        between("symbols", self.symbols, 1, 100_000)
        between("watched", self.watched, 1, min(100, self.symbols))
        one_of("by", self.by, ("attribute", "channel"))
        between("price", self.price, 1e-6, 1e9)
        between("volatility", self.volatility, 0, 1e6)
        between("band", self.band, 0, 1e9)
        between("drift", self.drift, 0, 1e6)
        between("forecast", self.forecast, 0.001, 1e6)
        between("rate", self.rate, 1e-6, 1000)
        between("payload", self.payload, 0, 1_000_000)


class PriceWalk:
    """A price as a function of time: one step per tick, remembered from the beginning on."""

    def __init__(self, rng: Random, begin: float, step: float) -> None:
        self._rng, self._step = rng, step
        self._prices = [begin]

    def at(self, t: Time) -> float:
        while len(self._prices) <= t // TICK:
            self._prices.append(self._prices[-1] + self._rng.gauss(0, self._step))
        return round(self._prices[t // TICK], 4)


class Trader:
    """One stay of one entity."""

    def __init__(self, market: "Market", entity: NodeId, stay: int, begins: Time) -> None:
        self.market, self.entity, self.stay, self.begins = market, entity, stay, begins

    def _stream(self, purpose: str) -> Random:
        return stream(self.market.seed, "trading", purpose, self.entity, self.stay)

    def _forecasts(self) -> Iterator[Scheduled]:
        """For each watched symbol in turn, again and again."""
        chosen, rng = self.market.parameters, self._stream("forecasts")
        watched = rng.sample(range(chosen.symbols), chosen.watched)
        first = first_id(self.entity, self.stay)
        for number in count():
            t = self.begins + round(number * chosen.forecast * SECOND)
            for place, symbol in enumerate(watched):
                price = self.market.price(symbol, t)
                drift = round(rng.uniform(-chosen.drift, chosen.drift), 4)
                low, high = round(price - chosen.band, 4), round(price + chosen.band, 4)
                band = f"price >= {low} + {drift} * t, price <= {high} + {drift} * t"
                if chosen.by == "channel":
                    yield t, Subscribe(first + place, EVERYTHING, Filter(band), _name(symbol))
                else:
                    text = f'symbol == "{_name(symbol)}", {band}'
                    yield t, Subscribe(first + place, EVERYTHING, Filter(text))

    def _quotes(self) -> Iterator[Scheduled]:
        market, chosen = self.market, self.market.parameters
        period, phase = SECOND / chosen.rate, 1 - self._stream("phase").random()
        symbol = self.entity % chosen.symbols
        name, here, payload = _name(symbol), point(0, 0), market.payload
        first = first_id(self.entity, self.stay) + chosen.watched
        for number in count():
            t = self.begins + ceil((number + phase) * period)
            price = market.price(symbol, t)
            if chosen.by == "channel":
                yield t, Publish(first + number, here, name, {"price": price}, payload)
            else:
                quote: dict[str, bool | int | float | str] = {"symbol": name, "price": price}
                yield t, Publish(first + number, here, "", quote, payload)

    def commands(self) -> Iterator[Scheduled]:
        return merge(self._forecasts(), self._quotes(), key=_turn)

    def position(self, t: Time) -> Vector:
        del t  # nobody is anywhere
        return ORIGIN


def _name(symbol: int) -> str:
    return f"S{symbol}"


def _turn(scheduled: tuple[Time, Command]) -> tuple[Time, bool]:
    """Interests come before publications of the same moment."""
    return scheduled[0], isinstance(scheduled[1], Publish)


class Market(Struct, frozen=True):
    """Traders that subscribe to moving price bands."""

    parameters: Parameters
    entities: int
    seed: int
    payload: bytes  # one for all quotes
    walks: dict[int, PriceWalk]

    @property
    def world(self) -> tuple[Vector, Vector]:
        return ORIGIN, ORIGIN

    def life(self, entity: NodeId, stay: int, begins: Time) -> Trader:
        return Trader(self, entity, stay, begins)

    def price(self, symbol: int, t: Time) -> float:
        """The walk of each symbol has a stream of its own, so nobody's question changes it."""
        if symbol not in self.walks:
            chosen = self.parameters
            step = chosen.volatility * (TICK / SECOND) ** 0.5
            rng = stream(self.seed, "trading", "price", symbol)
            self.walks[symbol] = PriceWalk(rng, chosen.price, step)
        return self.walks[symbol].at(t)


def make(parameters: Parameters, entities: int, seconds: float, seed: int) -> Workload:
    fits_identifiers(parameters.rate * seconds + parameters.watched)
    return Market(parameters, entities, seed, bytes(parameters.payload), {})
