"""One game of Planet π4, played as far as somebody has asked, and kept for all who ask again.

A ship takes 96 bytes for each tick of a tenth of a second.
"""

from random import Random

import numpy as np

from nearcast.space.motion import Time
from nearcast.space.shapes import Vector
from nearcast.workloads.planetpi4_game import Flags, Floats, Game
from nearcast.workloads.planetpi4_rules import TICK, GameEvent, Rules


class GameLog:
    """A game and what happened in each tick so far."""

    def __init__(self, rules: Rules, landscape: Random, rng: Random) -> None:
        self.game = Game(rules, landscape, rng)
        self._flights: list[Floats] = []  # by tick: place, velocity, heading and spin of all
        self._alive: list[Flags] = []
        self._events: list[dict[int, list[GameEvent]]] = []
        self._keep()

    def _keep(self) -> None:
        game = self.game
        self._flights.append(np.hstack((game.place, game.velocity, game.heading, game.spin)))
        self._alive.append(game.alive)
        self._events.append(game.events)

    def _play(self, tick: int) -> None:
        while len(self._flights) <= tick:
            self.game.advance()
            self._keep()

    def flight(self, ship: int, t: Time) -> tuple[Vector, Vector, Vector, Vector]:
        """Place, velocity, heading and spin at the beginning of the tick of that moment."""
        self._play(t // TICK)
        a, b, c, d, e, f, g, h, i, j, k, n = self._flights[t // TICK][ship].tolist()
        return (a, b, c), (d, e, f), (g, h, i), (j, k, n)

    def is_alive(self, ship: int, t: Time) -> bool:
        self._play(t // TICK)
        return bool(self._alive[t // TICK][ship])

    def events(self, ship: int, t: Time) -> list[GameEvent]:
        """What a ship does at that very moment: things happen when a tick begins."""
        if t % TICK:
            return []
        self._play(t // TICK)
        return self._events[t // TICK].get(ship, [])
