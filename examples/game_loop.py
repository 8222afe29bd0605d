"""The network side of a game loop: publish your own state, draw the others.

    nearcast node &
    python examples/game_loop.py --name ann --seconds 10
    python examples/game_loop.py --name ben --seconds 10

Every tick a character moves, publishes where it is as retained state, and draws what it knows:
`area.inside` always holds the entities in its area of interest, also those that stand still and
those that were there before it came. The area moves by itself between changes of direction, so a
character that walks straight on sends nothing but its own state.
"""

import argparse
import asyncio
import math
import random
import sys
from collections.abc import Sequence
from math import cos, hypot, sin

import nearcast

TICK_S = 0.1
SPEED = 8.0  # units per second
SIGHT = 40.0
WORLD = 100.0  # a square from 0 to WORLD
STRAIGHT = 20  # ticks between two changes of direction


async def play(me: nearcast.Client, ticks: int, rng: random.Random) -> None:
    x, y = rng.uniform(0, WORLD), rng.uniform(0, WORLD)
    area = await me.subscribe(nearcast.disc(x, y, SIGHT), watch=True)
    vx = vy = 0.0
    for tick in range(ticks):
        if tick % STRAIGHT == 0:  # a new direction: the area of interest takes it too
            angle = rng.uniform(0, math.tau)
            vx, vy = SPEED * cos(angle), SPEED * sin(angle)
            await area.move(nearcast.Moving(nearcast.disc(x, y, SIGHT), (vx, vy, 0.0)))
        x, y = (x + vx * TICK_S) % WORLD, (y + vy * TICK_S) % WORLD
        await me.publish(nearcast.point(x, y), retain=True, confirm=False)
        draw(me, x, y, area)
        await asyncio.sleep(TICK_S)


def draw(me: nearcast.Client, x: float, y: float, area: nearcast.Subscription) -> None:
    """A line of text stands for a picture."""
    seen = sorted(
        (hypot(other.x - x, other.y - y), other.name)
        for other in area.inside.values()
        if other.name != me.name
    )
    others = ", ".join(f"{name} at {distance:.0f}" for distance, name in seen) or "nobody"
    print(f"{me.name} at {x:.0f} {y:.0f} sees {others}", flush=True)


async def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="A character that walks about and sees others.")
    parser.add_argument("--url", default="ws://127.0.0.1:8470", help="of a node")
    parser.add_argument("--name", required=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    async with nearcast.connect(asked.url, name=asked.name) as me:
        rng = random.Random(f"{asked.seed} {asked.name}")
        await play(me, round(asked.seconds / TICK_S), rng)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
