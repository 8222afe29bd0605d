"""Two applications, each with a peer of its own and no server between them.

    python examples/peer.py

Each peer is a node of an overlay (here pSense) with a key and a port of its own. The second knows
the address of the first and nothing else. An application and its peer exchange the messages of the
client protocol (docs/reference/wire.md), here as lines of JSON within one process; `nearcast peer`
does the same as a program.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

from nearcast.client_protocol import messages
from nearcast.peer.peer import PeerOptions, parse_address, run_peer


class Application:
    """What a program does with its peer: it sends requests, and is told notices."""

    def __init__(self, name: str, options: PeerOptions) -> None:
        self.name = name
        self.requests: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.notices: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.peer = asyncio.create_task(run_peer(options, self.requests, self.receive))

    def receive(self, notice: Any) -> None:
        self.notices.put_nowait(json.loads(messages.JSON.encode(notice)))

    def send(self, do: str, **fields: Any) -> None:
        self.requests.put_nowait(json.dumps({"do": do, **fields}).encode())

    async def until(self, kind: str) -> dict[str, Any]:
        """The next notice of this kind."""
        while (notice := await self.notices.get())["is"] != kind:
            pass
        return notice


async def main(arguments: Sequence[str]) -> None:
    if arguments:
        raise SystemExit(__doc__)
    ann = Application("ann", PeerOptions(overlay="psense"))
    where = parse_address((await ann.until("welcome"))["node"])
    print("ann listens at {}:{}".format(*where))
    ben = Application("ben", PeerOptions(join=where))
    await ben.until("welcome")
    for one, x in ((ann, 0), (ben, 10)):
        one.send("subscribe", subscription=1, area={"x": x, "y": 0, "r": 50})
    message = asyncio.create_task(ann.until("message"))
    while not message.done():  # until the two have found each other, nobody hears anything
        ben.send("publish", x=3, y=4, payload="hello from ben")
        await asyncio.wait([message], timeout=0.2)
    print("ann received:", message.result()["payload"])
    for one in (ben, ann):
        one.send("leave")
        await one.peer


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
