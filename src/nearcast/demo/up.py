"""`nearcast up`: a live node, its page, and bots that play on it."""

import asyncio
import logging
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable
from contextlib import suppress

from nearcast.demo.mammoth_game import MammothRules
from nearcast.monitor.server import LiveMonitor
from nearcast.server.config import Settings
from nearcast.server.server import Server
from nearcast.storage import AnyPath

LOG = logging.getLogger(__name__)
STOPPING_S = 3.0  # that bots are given to stop


async def serve_with_bots(
    settings: Settings, bots: int, ready: Callable[[str, AnyPath], None], stop: asyncio.Event
) -> None:
    """Run a node with the page, and so many bots in another process, until `stop` is set."""
    async with Server(settings) as service:
        LiveMonitor(service, MammothRules().size if bots else None)
        assert service.recording is not None, "`up` always records"
        players = await _start_bots(service.url, bots) if bots else None
        ready(f"http://{settings.host}:{service.port}/", service.recording.path)
        if players is None:
            await stop.wait()
            return
        watch = asyncio.create_task(_warn_when_gone(players))
        await stop.wait()
        watch.cancel()
        await _stop_bots(players)


async def _warn_when_gone(players: Process) -> None:
    """Log it if the bots end by themselves; the node goes on without them."""
    code = await players.wait()
    LOG.error("the bots have ended (exit code %s)", code)


async def _start_bots(url: str, count: int) -> Process:
    command = (sys.executable, "-m", "nearcast.demo.mammoth_bots", url, str(count))
    # In a session of its own: Ctrl-C reaches this process alone, which then stops the bots.
    return await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, start_new_session=True)


async def _stop_bots(players: Process) -> None:
    with suppress(ProcessLookupError):
        players.terminate()
    try:
        await asyncio.wait_for(players.wait(), STOPPING_S)
    except TimeoutError:
        with suppress(ProcessLookupError):
            players.kill()
        await players.wait()
