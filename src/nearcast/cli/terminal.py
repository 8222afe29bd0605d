"""Clients for a terminal: print the publications of an area, and publish a text."""

import asyncio
from collections.abc import Callable
from itertools import count
from time import monotonic
from typing import Any

import msgspec

from nearcast.client.client import Client, ClientNotice, Disconnected, Reconnected, connect
from nearcast.client.inbox import Inbox
from nearcast.client.received import DirectMessage
from nearcast.client.subscription import Change, Entered, Entity, Message
from nearcast.space.shapes import Shape

Show = Callable[[dict[str, Any]], None]
Report = Callable[[str], None]

NODE_WAIT_S = 10.0  # for a node that is just starting
REPORT_AFTER_S = 1.0  # then the user is told that we wait
RETRY_S = 0.1


def ignore(_: str) -> None:
    """Report nothing."""


async def open_client(url: str, *, name: str, token: str, report: Report) -> Client:
    """Join the node. As long as nobody listens at its port, it may be starting: try again.

    What a node answers is final. ConnectionRefusedError if none has come within `NODE_WAIT_S`.
    """
    began, reported = monotonic(), False
    while True:
        try:
            return await connect(url, name=name, token=token).open()
        except ConnectionRefusedError as why:
            waited = monotonic() - began
            if waited >= NODE_WAIT_S:
                tried = f" (tried for {NODE_WAIT_S:g} seconds)" if NODE_WAIT_S else ""
                raise ConnectionRefusedError(f"{why}{tried}") from None
            if waited >= REPORT_AFTER_S and not reported:
                reported = True
                report(f"waiting for a node at {url}")
        await asyncio.sleep(RETRY_S)


async def listen(
    url: str,
    where: Shape,
    show: Show,
    *,
    name: str = "listener",
    token: str = "",
    channel: str = "",
    filter: str | None = None,  # noqa: A002
    watch: bool = False,
    most: int | None = None,
    report: Report = ignore,
) -> None:
    """Show the publications of an area, and with `watch` who enters and leaves it, until `most`
    lines were shown. `report` is called with the state of the connection."""
    async with await open_client(url, name=name, token=token, report=report) as me:
        here = await me.subscribe(where, channel=channel, filter=filter, watch=watch)
        report("listening (stop with Ctrl-C)")
        shown = count(1)

        async def show_all(inbox: Inbox[Any], fields: Callable[[Any], dict[str, Any]]) -> None:
            async for one in inbox:
                show(fields(one))
                if next(shown) == most:
                    return

        async def report_notices() -> None:
            async for notice in me.notices():
                report(notice_text(notice))

        tasks = [
            asyncio.ensure_future(show_all(here.messages, message_fields)),
            asyncio.ensure_future(show_all(me.direct_messages(), direct_fields)),
            asyncio.ensure_future(report_notices()),
        ]
        if watch:
            tasks.append(asyncio.ensure_future(show_all(here.changes(), change_fields)))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()


async def publish(
    url: str,
    where: Shape,
    payload: Any,
    *,
    name: str = "",
    token: str = "",
    channel: str = "",
    report: Report = ignore,
) -> int:
    """Publish a payload. Gives the number of the publication."""
    async with await open_client(url, name=name, token=token, report=report) as me:
        return await me.publish(where, payload, channel=channel)


async def send(
    url: str, to: str, payload: Any, *, name: str = "", token: str = "", report: Report = ignore
) -> int:
    """Send a payload to one entity. Gives the number of the message."""
    async with await open_client(url, name=name, token=token, report=report) as me:
        return await me.send(to, payload)


def notice_text(notice: ClientNotice) -> str:
    if isinstance(notice, Disconnected):
        return f"disconnected: {notice.reason}"
    if isinstance(notice, Reconnected):
        return "listening again"
    return msgspec.json.encode(notice).decode()


def message_fields(message: Message) -> dict[str, Any]:
    m = message
    return {"message": m.publication, "from": m.source, "t": m.t, **place_fields(m),
            "payload": m.payload}  # fmt: skip


def direct_fields(message: DirectMessage) -> dict[str, Any]:
    m = message
    return {"direct": m.number, "from": m.source, "name": m.name, "t": m.t, "payload": m.payload}


def place_fields(one: Message | Entity) -> dict[str, Any]:
    """Where it is: in degrees on Earth."""
    if one.lon is not None:
        return {"lon": one.lon, "lat": one.lat}
    return {"x": one.x, "y": one.y, "z": one.z}


def change_fields(change: Change) -> dict[str, Any]:
    what = "enter" if isinstance(change, Entered) else "leave"
    e: Entity = change.entity
    return {what: e.entity, "name": e.name, "t": e.t, **place_fields(e),
            "payload": e.payload}  # fmt: skip


def summary_line(shown: dict[str, Any]) -> str:
    """One line of text: who, where and what."""
    what = next(iter(shown))
    name = printable(shown.get("name", ""))
    who = shown["from"] if what == "message" else f"{name or shown[what]} {what}s"
    if what == "direct":
        who, place = name or shown["from"], "to you alone"
    elif "lon" in shown:
        place = f"{shown['lon']:.6f}, {shown['lat']:.6f}"
    else:
        place = ", ".join(f"{shown[axis]:g}" for axis in "xyz" if axis != "z" or shown["z"])
    payload = shown["payload"]
    text = printable(payload) if isinstance(payload, str) else to_json(payload)
    where = place if what == "direct" else f"at ({place})"
    return f"{who} {where}" + ("" if payload is None else f": {text}")


def printable(text: str) -> str:
    """Escape control characters: a publication must not control this terminal."""
    return text if text.isprintable() else ascii(text)


def to_json(value: Any) -> str:
    """Encode as JSON; values that JSON does not have are written as Python writes them."""
    return msgspec.json.encode(value, enc_hook=repr).decode()
