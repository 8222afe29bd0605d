"""How a bot of Planet π4 thinks: a small state machine ([Lucas2011] section 5.3.2).

It "mimics human behavior and follows the game rules", acting on its environment and its ship. A bot
thinks now and then; between two thoughts its ship flies on towards its goal.

    PATROL   fly from place to place
    CHASE    an enemy is in sight: fly at it and shoot
    FLEE     shields are low and an enemy is close: away, with the booster
    REPAIR   shields are low: to the nearest repair zone, and stay until they are full
"""

from enum import IntEnum
from typing import NamedTuple

LOW, FULL = 0.35, 0.95  # of the shields: when to look for repair, and when it is done
READY = 0.25  # of the energy: with less, a fight is not begun
CLOSE = 0.5  # of the sight: an enemy nearer than that is fled from


class BotState(IntEnum):
    """What a bot is doing; see above."""

    PATROL = 0
    CHASE = 1
    FLEE = 2
    REPAIR = 3


class BotObservation(NamedTuple):
    """What a bot observes. Shields and energy are shares of what there can be."""

    shield: float
    energy: float
    enemy: float  # distance to the nearest, as a share of how far it sees; above 1: none in sight


def next_state(state: BotState, senses: BotObservation) -> BotState:
    """What to do next."""
    in_sight, close = senses.enemy <= 1.0, senses.enemy <= CLOSE
    hurt = senses.shield < (FULL if state in (BotState.FLEE, BotState.REPAIR) else LOW)
    match state:
        case _ if hurt and close:
            return BotState.FLEE
        case _ if hurt:
            return BotState.REPAIR
        case BotState.CHASE if in_sight:
            return BotState.CHASE  # to the end, whatever energy is left
        case _ if in_sight and senses.energy >= READY:
            return BotState.CHASE
        case _:
            return BotState.PATROL


def boosts(state: BotState, senses: BotObservation) -> bool:
    """To escape, or to reach a repair zone (section 2.1); and to catch up with an enemy."""
    far = senses.enemy > CLOSE
    return state == BotState.FLEE or (state == BotState.CHASE and far and senses.energy > 2 * READY)
