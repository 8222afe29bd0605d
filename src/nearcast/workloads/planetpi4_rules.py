"""What of a game of Planet π4 can be chosen, and what can happen in it."""

from enum import IntEnum
from typing import NamedTuple

from msgspec import Struct

from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import Vector

TICK: Time = SECOND // 10
SHIELD, ENERGY = 100.0, 100.0  # most that a ship can have


class Rules(Struct, frozen=True):
    """What of a game can be chosen."""

    ships: int
    teams: int
    size: float
    sight: float  # how far a bot sees
    speed: float  # when cruising
    boost: float  # times that, with the booster
    asteroids: int
    zones: int
    respawn: int  # ticks from the explosion to the next life
    bounded: bool = True  # does the world end at its size?


class GameEventKind(IntEnum):
    """What can happen to a ship."""

    BEAM = 0
    COLLISION = 1
    EXPLODED = 2
    RESPAWNED = 3


class GameEvent(NamedTuple):
    """What happens to or by a ship at the beginning of a tick; `other` and `place` of a hit are
    those of the ship that is hit."""

    kind: GameEventKind
    other: int
    place: Vector
    damage: float
