"""A simulation with Nearcast inside, without any network: taxis and the people who wait for one.

    python examples/embedded_world.py --trace rides

Each taxi listens to an area that drives along its route by itself; whoever waits publishes once.
With --trace, what happened is recorded: `nearcast analyse rides` judges it.
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Sequence

import nearcast

CITY = 1_000.0
HEARING = 150.0
SPEED = 50.0  # fast, so that an example is short


async def drive(taxi: nearcast.Client, rng: random.Random) -> nearcast.Subscription:
    """From here to there, with an area of interest that goes along."""
    start, *route = [(rng.uniform(0, CITY), rng.uniform(0, CITY)) for _ in range(4)]
    area = nearcast.path(nearcast.disc(*start, HEARING), route, SPEED)
    return await taxi.subscribe(area, filter="seats <= 4", channel="rides")


async def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Taxis that hear of passengers on their way.")
    parser.add_argument("--taxis", type=int, default=20)
    parser.add_argument("--passengers", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trace", help="record into this folder")
    asked = parser.parse_args(arguments)
    rng = random.Random(asked.seed)
    async with nearcast.World(trace=asked.trace) as world:
        taxis = [await world.join(f"taxi {number}") for number in range(asked.taxis)]
        routes = [await drive(taxi, rng) for taxi in taxis]
        city = await world.join("city")
        for number in range(asked.passengers):
            place = nearcast.point(rng.uniform(0, CITY), rng.uniform(0, CITY))
            await city.publish(
                place,
                {"passenger": number},
                attributes={"seats": rng.randint(1, 6)},
                channel="rides",
                name=f"passenger {number}",
            )
        for taxi in taxis:
            await taxi.close()
        total = 0
        for taxi, route in zip(taxis, routes, strict=True):
            offers = [message.payload["passenger"] async for message in route]
            total += len(offers)
            if offers:
                print(f"{taxi.name} could take {offers}")
        print(f"{asked.passengers} passengers, {total} offers")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
