"""A live node from a terminal: hear what is said somewhere, and say something."""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec

from nearcast.client.client import ClientNotice, Disconnected, Reconnected, connect
from nearcast.client.inbox import Inbox
from nearcast.client.subscription import Change, Entered, Entity, Message
from nearcast.space.shapes import Shape

Show = Callable[[dict[str, Any]], None]


async def listen(
    url: str,
    where: Shape,
    show: Show,
    *,
    token: str = "",
    channel: str = "",
    filter: str | None = None,  # noqa: A002
    watch: bool = False,
    most: int | None = None,
    remark: Callable[[str], None] = lambda _: None,
) -> None:
    """Show what is heard there, and with `watch` who comes and goes, until `most` were shown.

    `remark` is told how it goes: that it listens, and what the connection and the node say of it.
    """
    async with connect(url, name="listener", token=token) as me:
        here = await me.subscribe(where, channel=channel, filter=filter, watch=watch)
        remark("listening (stop with Ctrl-C)")
        shown = count(1)

        async def tell(inbox: Inbox[Any], told: Callable[[Any], dict[str, Any]]) -> None:
            async for one in inbox:
                show(told(one))
                if next(shown) == most:
                    return

        async def tell_notices() -> None:
            async for notice in me.notices():
                remark(notice_text(notice))

        tasks = [
            asyncio.ensure_future(tell(here.messages, message_fields)),
            asyncio.ensure_future(tell_notices()),
        ]
        if watch:
            tasks.append(asyncio.ensure_future(tell(here.changes(), change_fields)))
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
) -> int:
    """The publication's number."""
    async with connect(url, name=name, token=token) as me:
        return await me.publish(where, payload, channel=channel)


def notice_text(notice: ClientNotice) -> str:
    if isinstance(notice, Disconnected):
        return f"disconnected: {notice.reason}"
    if isinstance(notice, Reconnected):
        return "listening again"
    return msgspec.json.encode(notice).decode()


def message_fields(message: Message) -> dict[str, Any]:
    m = message
    return {"message": m.publication, "from": m.source, "t": m.t, "x": m.x, "y": m.y, "z": m.z,
            "payload": m.payload}  # fmt: skip


def change_fields(change: Change) -> dict[str, Any]:
    what = "enter" if isinstance(change, Entered) else "leave"
    e: Entity = change.entity
    return {what: e.entity, "name": e.name, "t": e.t, "x": e.x, "y": e.y, "z": e.z,
            "payload": e.payload}  # fmt: skip


def summary_line(shown: dict[str, Any]) -> str:
    """For people: who, where and what."""
    what = next(iter(shown))
    name = printable(shown.get("name", ""))
    who = shown["from"] if what == "message" else f"{name or shown[what]} {what}s"
    place = ", ".join(f"{shown[axis]:g}" for axis in "xyz" if axis != "z" or shown["z"])
    payload = shown["payload"]
    text = printable(payload) if isinstance(payload, str) else to_json(payload)
    return f"{who} at ({place})" + ("" if payload is None else f": {text}")


def printable(text: str) -> str:
    """Without control characters: what strangers say must not control this terminal."""
    return text if text.isprintable() else ascii(text)


def to_json(value: Any) -> str:
    """As JSON, and what JSON cannot express as Python writes it: nobody's payload ends this."""
    return msgspec.json.encode(value, enc_hook=repr).decode()
