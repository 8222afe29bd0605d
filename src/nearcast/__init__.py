"""Nearcast: spatial publish/subscribe that runs, simulates and counts.

    async with nearcast.connect("ws://127.0.0.1:8470", name="alice") as me:
        here = await me.subscribe(nearcast.disc(0, 0, 50))
        await me.publish(nearcast.point(3, 4), {"text": "hello"})

`connect` opens a connection to a node, `World` is a node in this process, `join` makes this process
a peer of an overlay without servers; all give a `Client`.
Names are loaded when they are first used, so `import nearcast` takes no time.
"""

TYPE_CHECKING = False  # `typing` takes longer to load than all of this
if TYPE_CHECKING:
    from nearcast.client.client import Client, Disconnected, HandedOver, Reconnected, connect
    from nearcast.client.received import DirectMessage
    from nearcast.client.subscription import (
        Entered,
        Entity,
        FenceEvent,
        Left,
        Message,
        Subscription,
    )
    from nearcast.client_protocol.messages import DroppedNotice, ErrorNotice, WithheldNotice
    from nearcast.client_protocol.payloads import Unreadable
    from nearcast.errors import (
        Busy,
        ClosedError,
        FormulaError,
        InvalidRequestError,
        JoinError,
        NearcastError,
        NotOfferedError,
        Refused,
        TraceError,
    )
    from nearcast.peer.peer_link import join
    from nearcast.server.in_process import World
    from nearcast.space.earth_shapes import (
        earth_ball,
        earth_bounds,
        earth_disc,
        earth_point,
        great_circle_line,
        great_circle_path,
    )
    from nearcast.space.geojson import geojson_from_shape, shape_from_geojson
    from nearcast.space.motion import SECOND, Moving, Path, line, path
    from nearcast.space.outline_shapes import (
        corridor,
        earth_corridor,
        earth_multipolygon,
        earth_polygon,
        earth_sector,
        multipolygon,
        polygon,
        sector,
    )
    from nearcast.space.shapes import Shape, ball, box, cuboid, disc, point

__version__ = "0.1.0"

__all__ = [
    "SECOND", "Busy", "Client", "ClosedError", "DirectMessage", "Disconnected", "DroppedNotice",
    "Entered", "Entity", "ErrorNotice", "FenceEvent", "FormulaError", "HandedOver",
    "InvalidRequestError", "JoinError", "Left", "Message", "Moving", "NearcastError",
    "NotOfferedError", "Path", "Reconnected", "Refused", "Shape", "Subscription", "TraceError",
    "Unreadable", "WithheldNotice", "World", "ball", "box", "connect", "corridor", "cuboid", "disc",
    "earth_ball", "earth_bounds", "earth_corridor", "earth_disc", "earth_multipolygon",
    "earth_point", "earth_polygon", "earth_sector", "geojson_from_shape", "great_circle_line",
    "great_circle_path", "join", "line", "multipolygon", "path", "point", "polygon", "sector",
    "shape_from_geojson",
]  # fmt: skip

_MODULES = {
    "client.client": ("Client", "Disconnected", "HandedOver", "Reconnected", "connect"),
    "client.received": ("DirectMessage",),
    "client.subscription": ("Entered", "Entity", "FenceEvent", "Left", "Message", "Subscription"),
    "client_protocol.messages": ("DroppedNotice", "ErrorNotice", "WithheldNotice"),
    "client_protocol.payloads": ("Unreadable",),
    "errors": (
        "Busy", "ClosedError", "FormulaError", "InvalidRequestError", "JoinError", "NearcastError",
        "NotOfferedError", "Refused", "TraceError",
    ),
    "peer.peer_link": ("join",),
    "server.in_process": ("World",),
    "space.earth_shapes": (
        "earth_ball", "earth_bounds", "earth_disc", "earth_point", "great_circle_line",
        "great_circle_path",
    ),
    "space.geojson": ("geojson_from_shape", "shape_from_geojson"),
    "space.motion": ("SECOND", "Moving", "Path", "line", "path"),
    "space.outline_shapes": (
        "corridor", "earth_corridor", "earth_multipolygon", "earth_polygon", "earth_sector",
        "multipolygon", "polygon", "sector",
    ),
    "space.shapes": ("Shape", "ball", "box", "cuboid", "disc", "point"),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'nearcast' has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"nearcast.{_MODULE_OF[name]}"), name)
    except ModuleNotFoundError as why:
        from nearcast.extras import missing

        if (reason := missing(why)) is None:
            raise
        raise ImportError(reason) from None


def __dir__() -> list[str]:
    return sorted(__all__)
