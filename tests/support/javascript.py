"""Programs in JavaScript that use our client, run by Node.js."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from nearcast.client_protocol import messages
from support.patience import PATIENCE_S
from support.scripted_nodes import ScriptedNode

CLIENTS = Path(__file__).parents[2] / "clients" / "js"
NODE = shutil.which("node")
if NODE is None:  # whoever imports this needs it
    pytest.skip("there is no Node.js on this machine", allow_module_level=True)


async def in_node(program: str, *arguments: str) -> list[Any]:
    """Run a module that may use `nc`, `url` and `tell`; what it told, line by line."""
    head = f"""
        import * as nc from {json.dumps(str(CLIENTS / "nearcast.js"))};
        const [url, ...more] = process.argv.slice(1);
        const tell = (value) => console.log(JSON.stringify(value));
    """
    assert NODE is not None
    process = await asyncio.create_subprocess_exec(
        NODE, "--experimental-websocket", "--no-warnings", "--input-type=module",
        "-e", head + program, "--", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    finally:
        if process.returncode is None:
            process.kill()
    assert (process.returncode, err.decode()) == (0, "")
    return [json.loads(line) for line in out.decode().splitlines()]


def published(node: ScriptedNode) -> list[tuple[str, str, float]]:
    """What was published there since the last join: who, on which channel, where."""
    since = max(index for index, kind in enumerate(node.kinds()) if kind is messages.JoinRequest)
    requests = [one for kind, one in node.asked[since:] if kind is messages.PublishRequest]
    return [(one.name, one.channel, one.x) for one in requests]
