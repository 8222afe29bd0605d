"""How to run what was recommended: commands, and nearcast.toml for nodes.

Only settings that differ from their defaults are given.
"""

import shlex
from math import ceil

from msgspec import Struct
from msgspec.structs import fields

from nearcast.pipeline.advise.candidates import OverlayCandidate
from nearcast.pipeline.advise.world import WorldFacts
from nearcast.protocols import PROTOCOLS
from nearcast.server.config import LimitSettings
from nearcast.sim.settings import CLUSTER
from nearcast.trace.reader import EARTH

ROOM = 2  # times as many clients and requests as were measured


class Deployment(Struct, frozen=True, kw_only=True):
    """Commands to type, a settings file if nodes need one, and what to know about both."""

    commands: tuple[str, ...]
    settings_file: str = ""  # the content of nearcast.toml
    notes: tuple[str, ...] = ()


def make_deployment(candidate: OverlayCandidate, facts: WorldFacts, holds_to: float) -> Deployment:
    if candidate.protocol in (CLUSTER, "client-server"):
        return deploy_nodes(candidate, facts, holds_to)
    return deploy_peers(candidate, facts)


def deploy_nodes(candidate: OverlayCandidate, facts: WorldFacts, holds_to: float) -> Deployment:
    """One node, or as many as the cluster has."""
    text = settings_text(facts, holds_to)
    file = " --config nearcast.toml" if text else ""
    notes = ["clients reach the node from elsewhere with --host ADDRESS and --token-file FILE"]
    if candidate.protocol != CLUSTER:
        notes.insert(
            0, "judged by client-server, which stands for a node in its simplest form; a node also"
            " collects deliveries under load (flush_ms)",
        )  # fmt: skip
    commands = [f"nearcast node{file}"]
    if candidate.servers > 1:
        key = "--cluster-key cluster.key --cluster-host"
        commands = [f"nearcast node{file} {key} 10.0.0.1 --cluster-port 8471"]
        commands += [
            f"nearcast node{file} {key} 10.0.0.{number} --join 10.0.0.1:8471"
            for number in range(2, candidate.servers + 1)
        ]
        notes.append(
            "one command on each machine, with its own address in place of 10.0.0.N; the first"
            " makes cluster.key, which the others need"
        )
    return Deployment(commands=tuple(commands), settings_file=text, notes=tuple(notes))


def settings_text(facts: WorldFacts, holds_to: float) -> str:
    """The geometry and the limits that this world needs, if they are not the default; else ""."""
    defaults = LimitSettings()
    clients = ceil(facts.entities * max(1.0, holds_to) * ROOM)
    requests = ceil(facts.rate * 2 * ROOM)  # each publication may come with a move
    per_client = ceil(facts.subscriptions / facts.entities) * ROOM
    needed: dict[str, int | float] = {
        "clients": clients, "requests": requests, "subscriptions": per_client,
        "channels": facts.channels * ROOM, "payload": ceil(facts.payload * ROOM),
    }  # fmt: skip
    geometry = []
    if facts.geometry == EARTH:
        geometry = [f'geometry = "{EARTH}"']
    else:
        needed["extent"] = facts.radius * ROOM
    lines = [
        f"{name} = {value}" for name, value in needed.items() if value > getattr(defaults, name)
    ]
    if lines:
        lines = ["# Limits for twice what was measured.", "[limits]", *lines]
    return "".join(f"{line}\n" for line in [*geometry, *lines])


def deploy_peers(candidate: OverlayCandidate, facts: WorldFacts) -> Deployment:
    """The first peer begins the overlay with its settings; the others get them from it."""
    defaults = {
        field.name: field.default for field in fields(PROTOCOLS[candidate.protocol].parameters)
    }
    chosen = "".join(
        f" --set {shlex.quote(f'{name}={value}')}"
        for name, value in candidate.settings.items()
        if defaults.get(name) != value
    )
    geometry = " --geometry earth" if facts.geometry == EARTH else ""
    peer = f"nearcast peer --overlay {candidate.protocol}{geometry}"
    first = f"{peer} --host 10.0.0.1 --port 9001{chosen}"
    commands = [first, "nearcast peer --join 10.0.0.1:9001"]
    notes = [
        "10.0.0.1 stands for the address of the first peer; it may be any later one's that is up",
    ]
    if candidate.protocol == "brokers":
        commands.insert(1, "nearcast peer --join 10.0.0.1:9001 --serve")
        notes.append(f"the second command for each of the other {candidate.servers - 1} brokers")
    elif candidate.needs_server:
        notes.append("the first peer also runs the directory, and must stay")
    return Deployment(commands=tuple(commands), notes=tuple(notes))
