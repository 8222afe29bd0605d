"""A chat in which people hear those who are near them.

    nearcast node &
    python examples/chat.py --name ann --x 0 --y 0
    python examples/chat.py --name ben --x 30 --y 0      # in another terminal

Type a line to say it to everybody within 50 metres; `/go X Y` to go there; Ctrl-D to leave.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence

import nearcast

HEARING = 50.0  # metres


async def show_messages(area: nearcast.Subscription) -> None:
    async for message in area:
        if message.payload is not None:  # a state says where somebody is, and nothing else
            print(f"{message.payload['name']}: {message.payload['text']}", flush=True)


async def show_neighbours(area: nearcast.Subscription) -> None:
    async for change in area.changes():
        verb = "is near" if isinstance(change, nearcast.Entered) else "is gone"
        print(f"({change.entity.name} {verb})", flush=True)


async def chat(me: nearcast.Client, x: float, y: float, lines: asyncio.StreamReader) -> None:
    area = await me.subscribe(nearcast.disc(x, y, HEARING), watch=True)
    print(f"(you are at {x:g}, {y:g})", flush=True)
    await me.publish(nearcast.point(x, y), retain=True)  # others see that we are here
    tasks = [asyncio.create_task(show(area)) for show in (show_messages, show_neighbours)]
    while line := (await lines.readline()).decode():
        if line.startswith("/go "):
            x, y = map(float, line.split()[1:3])
            await area.move(nearcast.disc(x, y, HEARING))
            await me.publish(nearcast.point(x, y), retain=True)
        elif text := line.strip():
            await me.publish(nearcast.point(x, y), {"name": me.name, "text": text})
    for task in tasks:
        task.cancel()


async def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Chat with those who are near.")
    parser.add_argument("--url", default="ws://127.0.0.1:8470", help="of a node")
    parser.add_argument("--name", required=True)
    parser.add_argument("--x", type=float, default=0.0)
    parser.add_argument("--y", type=float, default=0.0)
    asked = parser.parse_args(arguments)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    async with nearcast.connect(asked.url, name=asked.name) as me:
        await chat(me, asked.x, asked.y, lines)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
