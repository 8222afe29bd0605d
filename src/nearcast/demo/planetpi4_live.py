"""A game of Planet π4 that is played now, in which ships from elsewhere may take part.

Bots play the game of the workload, tick by tick (`workloads.planetpi4_game`), and without guests it
is the very game that a simulation of the same seed plays. A guest is a ship that the bots' peers
have heard and that is none of theirs: a person's, or a bot's of another process. It flies itself;
here it is where it said it was, and further on until its next word. Bots chase guests, shoot at
them and run into them, and leave it to each guest to obey the hits that they tell it.
"""

from collections.abc import Callable
from math import isfinite

import numpy as np

from nearcast.model.subscription import NodeId
from nearcast.space.motion import SECOND
from nearcast.workloads.planetpi4_bots import State
from nearcast.workloads.planetpi4_game import NOBODY, Floats, Game
from nearcast.workloads.planetpi4_log import Log
from nearcast.workloads.planetpi4_reckoning import Update
from nearcast.workloads.planetpi4_rules import ENERGY, SHIELD, TICK

KEPT = 100  # ticks that lives may still ask about
SILENT = 2 * SECOND // TICK  # ticks without a word, after which a guest has gone
GONE = 2**62  # the tick at which somebody comes back who has gone
NO_TEAM = -1  # the team of whoever has none here: everybody's enemy
MAX_EXTERNAL_SHIPS = 256
# What a game holds of each ship.
COLUMNS = (
    "team", "place", "waypoint", "heading", "velocity", "spin", "shield", "energy", "state",
    "enemy", "boosting", "ready_at", "safe_until", "back_at",
)  # fmt: skip


class LiveGameLog(Log):
    """The game as far as it has been played, of which only the last seconds are kept."""

    guests: "ExternalShips | None" = None
    _forgotten = 0

    def _keep(self) -> None:
        if self.guests is not None:
            self.guests.hold()
        super()._keep()

    def _play(self, tick: int) -> None:
        super()._play(tick)
        nothing, nobody = self._flights[-1][:0], self._alive[-1][:0]
        while self._forgotten < len(self._flights) - KEPT:
            self._flights[self._forgotten] = nothing
            self._alive[self._forgotten] = nobody
            self._acts[self._forgotten] = {}
            self._forgotten += 1


class ExternalShips:
    """Ships of a game that somebody else flies. `team_of` knows the teams of some."""

    def __init__(self, game: Game, team_of: Callable[[NodeId], int]) -> None:
        self._game, self._team_of = game, team_of
        self.slots: dict[NodeId, int] = {}
        self._heard: dict[NodeId, int] = {}  # by name: at which tick
        self._said: dict[NodeId, Floats] = {}  # by name: its velocity

    def see(self, name: NodeId, update: Update) -> None:
        """It has said where it is; whatever cannot be a place or a velocity is not believed."""
        game, numbers = self._game, (*update.place, *update.velocity)
        if not all(isfinite(number) and abs(number) < 10 * game.rules.size for number in numbers):
            return
        slot = self.slots.get(name)
        if slot is None:
            slot = self._admit(name)
            if slot is None:
                return
        game.place[slot] = np.clip(update.place, 0.0, game.rules.size)
        game.velocity[slot] = self._said[name] = np.array(update.velocity)
        game.shield[slot], game.energy[slot] = SHIELD, ENERGY  # which it counts itself
        game.back_at[slot] = 0
        self._heard[name] = game.tick

    def hold(self) -> None:
        """Whatever the game has made of it, a guest flies as it said."""
        for name, slot in self.slots.items():
            self._game.velocity[slot] = self._said[name]

    def lose(self, name: NodeId) -> None:
        """It has exploded, or gone."""
        if name in self.slots:
            self._game.back_at[self.slots[name]] = GONE

    def clean(self) -> None:
        for name, tick in list(self._heard.items()):
            if self._game.tick - tick > SILENT:
                self.lose(name)

    def _admit(self, name: NodeId) -> int | None:
        """The slot of somebody who has gone, or a new one."""
        game = self._game
        for other, slot in self.slots.items():
            if game.back_at[slot] == GONE:
                del self.slots[other], self._heard[other], self._said[other]
                break
        else:
            if len(self.slots) >= MAX_EXTERNAL_SHIPS:
                return None
            slot = len(game.place)
            for column in COLUMNS:
                rows = getattr(game, column)
                setattr(game, column, np.concatenate((rows, rows[:1])))
        game.team[slot] = self._team_of(name)
        game.state[slot], game.enemy[slot], game.boosting[slot] = State.PATROL, NOBODY, False
        game.heading[slot], game.spin[slot] = (1.0, 0.0, 0.0), 0.0
        game.safe_until[slot] = 0
        self.slots[name] = slot
        return slot


def apply_damage(game: Game, ship: int, damage: float) -> None:
    """A beam or a hull from elsewhere has hit this ship."""
    if isfinite(damage) and 0 < damage <= SHIELD and game.alive[ship]:
        game.shield[ship] = max(0.0, game.shield[ship] - damage)
