"""Two applications, each with a peer of its own and no server between them.

    python examples/peer.py
    python examples/peer.py drtree

Each peer is a node of an overlay (pSense, if none is named) with a key and a port of its own. The
second knows the address of the first and nothing else. `nearcast.join` gives the same client as
`nearcast.connect`; what the overlay does not offer is an error that says who does.
"""

import asyncio
import sys
from collections.abc import Sequence

import nearcast


async def main(arguments: Sequence[str]) -> None:
    if len(arguments) > 1:
        raise SystemExit(__doc__)
    async with nearcast.join(*arguments or ["psense"]) as ann:
        print("ann listens at", ann.node)
        async with nearcast.join(contact=ann.node) as ben:
            here = await ann.subscribe(nearcast.disc(0, 0, 50))
            await ben.subscribe(nearcast.disc(10, 0, 50))
            message = asyncio.ensure_future(anext(here))
            while not message.done():  # until the two have found each other, nobody hears anything
                await ben.publish(nearcast.point(3, 4), "hello from ben")
                await asyncio.wait([message], timeout=0.2)
            print("ann received:", message.result().payload)
        try:
            await ann.subscribe(nearcast.disc(0, 0, 50), watch=True)
        except nearcast.NotOfferedError as why:
            print(why)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
