"""A game of Planet π4 that is played now, in which ships of other processes may take part.

Bots play the workload's game tick by tick (`workloads.planetpi4_game`); without external ships it
is exactly the game that a simulation of the same seed plays. An external ship is one whose
publications the bots' peers receive and that is none of theirs: a person's, or a bot's of another
process. It is controlled elsewhere; here it has the position and velocity of its last publication.
Bots chase external ships, shoot at them and collide with them; each external ship applies the hits
that are published to it.
"""

from collections.abc import Callable
from math import isfinite

import numpy as np

from nearcast.model.subscription import NodeId
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import Vector
from nearcast.workloads.planetpi4_bots import BotState
from nearcast.workloads.planetpi4_game import NOBODY, Floats, Game
from nearcast.workloads.planetpi4_log import GameLog
from nearcast.workloads.planetpi4_reckoning import ShipUpdate
from nearcast.workloads.planetpi4_rules import ENERGY, SHIELD, TICK

KEPT = 100  # ticks of the past that lives may still ask about
SILENT = 2 * SECOND // TICK  # ticks without an update, after which an external ship counts as gone
GONE = 2**62  # the tick at which a ship comes back that has left
NO_TEAM = -1  # the team of a ship without one: everybody's enemy
MAX_EXTERNAL_SHIPS = 256
# The game's columns with one row for each ship.
COLUMNS = (
    "team", "place", "waypoint", "heading", "velocity", "spin", "shield", "energy", "state",
    "enemy", "boosting", "ready_at", "safe_until", "back_at",
)  # fmt: skip


class LiveGameLog(GameLog):
    """The log of a game that goes on; only its last ticks are kept. Who asks about earlier ones,
    as on a busy machine, is told of the oldest that is kept."""

    external_ships: "ExternalShips | None" = None
    _forgotten = 0

    def _keep(self) -> None:
        if self.external_ships is not None:
            self.external_ships.restore_velocities()
        super()._keep()

    def _play(self, tick: int) -> None:
        super()._play(tick)
        nothing, nobody = self._flights[-1][:0], self._alive[-1][:0]
        while self._forgotten < len(self._flights) - KEPT:
            self._flights[self._forgotten] = nothing
            self._alive[self._forgotten] = nobody
            self._events[self._forgotten] = {}
            self._forgotten += 1

    def flight(self, ship: int, t: Time) -> tuple[Vector, Vector, Vector, Vector]:
        return super().flight(ship, max(t, self._forgotten * TICK))

    def is_alive(self, ship: int, t: Time) -> bool:
        return super().is_alive(ship, max(t, self._forgotten * TICK))


class ExternalShips:
    """Ships of the game that other processes control. `team_of` gives a ship's team."""

    def __init__(self, game: Game, team_of: Callable[[NodeId], int]) -> None:
        self._game, self._team_of = game, team_of
        self.slots: dict[NodeId, int] = {}  # by ship: its index in the game's columns
        self._updated_at: dict[NodeId, int] = {}  # by ship: the tick of its last update
        self._velocities: dict[NodeId, Floats] = {}  # by ship

    def update(self, name: NodeId, state: ShipUpdate) -> None:
        """Take over a published state. States that cannot be true are ignored."""
        game, numbers = self._game, (*state.place, *state.velocity)
        if not all(isfinite(number) and abs(number) < 10 * game.rules.size for number in numbers):
            return
        slot = self.slots.get(name)
        if slot is None:
            slot = self._add(name)
            if slot is None:
                return
        game.place[slot] = np.clip(state.place, 0.0, game.rules.size)
        game.velocity[slot] = self._velocities[name] = np.array(state.velocity)
        game.shield[slot], game.energy[slot] = SHIELD, ENERGY  # which its own process counts
        game.back_at[slot] = 0
        self._updated_at[name] = game.tick

    def restore_velocities(self) -> None:
        """Undo what the game did to velocities: external ships have those they published."""
        for name, slot in self.slots.items():
            self._game.velocity[slot] = self._velocities[name]

    def remove(self, name: NodeId) -> None:
        """The ship has exploded or left."""
        if name in self.slots:
            self._game.back_at[self.slots[name]] = GONE

    def remove_silent(self) -> None:
        """Remove ships that have not sent an update for a while."""
        for name, tick in list(self._updated_at.items()):
            if self._game.tick - tick > SILENT:
                self.remove(name)

    def _add(self, name: NodeId) -> int | None:
        """A slot for a new ship: that of one that has left, or one more. None if there are too
        many."""
        game = self._game
        for other, slot in self.slots.items():
            if game.back_at[slot] == GONE:
                del self.slots[other], self._updated_at[other], self._velocities[other]
                break
        else:
            if len(self.slots) >= MAX_EXTERNAL_SHIPS:
                return None
            slot = len(game.place)
            for column in COLUMNS:
                rows = getattr(game, column)
                setattr(game, column, np.concatenate((rows, rows[:1])))
        game.team[slot] = self._team_of(name)
        game.state[slot], game.enemy[slot], game.boosting[slot] = BotState.PATROL, NOBODY, False
        game.heading[slot], game.spin[slot] = (1.0, 0.0, 0.0), 0.0
        game.safe_until[slot] = 0
        self.slots[name] = slot
        return slot


def apply_damage(game: Game, ship: int, damage: float) -> None:
    """An external ship has hit this one, with a beam or by collision."""
    if isfinite(damage) and 0 < damage <= SHIELD and game.alive[ship]:
        game.shield[ship] = max(0.0, game.shield[ship] - damage)
