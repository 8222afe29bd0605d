"""Nearcast: spatial publish/subscribe that runs, simulates and counts.

`connect` and `World` are loaded when they are first used: `import nearcast` alone takes no time.
"""

TYPE_CHECKING = False  # `typing` takes longer to load than all of this
if TYPE_CHECKING:
    from nearcast.client.client import connect as connect
    from nearcast.client_protocol.payloads import Unreadable as Unreadable
    from nearcast.errors import Refused as Refused
    from nearcast.server.in_process import World as World

__version__ = "0.1.0"

_HOMES = {
    "connect": "nearcast.client.client",
    "Refused": "nearcast.client_protocol.limits",
    "Unreadable": "nearcast.client_protocol.payloads",
    "World": "nearcast.server.in_process",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'nearcast' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
