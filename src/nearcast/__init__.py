"""Nearcast: spatial publish/subscribe that runs, simulates and counts.

`connect` and `World` are loaded when they are first used: `import nearcast` alone takes no time.
"""

TYPE_CHECKING = False  # `typing` takes longer to load than all of this
if TYPE_CHECKING:
    from nearcast.live.admission import Refused as Refused
    from nearcast.live.client import connect as connect
    from nearcast.live.embedded import World as World
    from nearcast.live.payloads import Unreadable as Unreadable

__version__ = "0.1.0"

_HOMES = {
    "connect": "nearcast.live.client",
    "Refused": "nearcast.live.admission",
    "Unreadable": "nearcast.live.payloads",
    "World": "nearcast.live.embedded",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'nearcast' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
