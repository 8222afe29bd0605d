"""Sets of fences over HTTP, and last places that stay."""

import asyncio
import json
from pathlib import Path
from typing import Any

import nearcast
from nearcast.server.config import LimitSettings
from nearcast.server.server import Server
from nearcast.space.shapes import point
from support.join_targets import address, run
from support.live_clients import service
from support.patience import PATIENCE_S
from support.raw_websocket import http


def square(x: float) -> list[list[list[float]]]:
    return [[[x - 1, -1], [x + 1, -1], [x + 1, 1], [x - 1, 1], [x - 1, -1]]]


def feature(which: Any, x: float) -> dict[str, Any]:
    geometry = {"type": "Polygon", "coordinates": square(x)}
    return {"type": "Feature", "id": which, "geometry": geometry, "properties": {"kind": "depot"}}


def collection(*features: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"type": "FeatureCollection", "features": features, **more}).encode()


async def ask(
    node: Server, method: str, path: str = "/fences/depots", body: bytes = b"", token: str = ""
) -> tuple[int, Any]:
    """The status and what the answer says."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    status, _, text = await http(node, "\r\n".join([*lines, "", ""]), body)
    return status, json.loads(text) if text else None


def test_a_set_is_put_given_changed_and_removed() -> None:
    async def story() -> None:
        async with service() as node, nearcast.connect(address(node), name="office") as office:
            assert (await ask(node, "GET"))[0] == (await ask(node, "DELETE"))[0] == 404
            put = collection(feature("a", 0), feature(7, 10))
            assert await ask(node, "PUT", body=put) == (200, {"fences": 2})
            assert await ask(node, "GET") == (200, json.loads(put))
            depots = await office.subscribe(fences="depots", events=["enter", "leave"])
            await office.publish(point(10, 0), retain=True, name="truck")
            assert (await asyncio.wait_for(anext(depots.events()), PATIENCE_S)).fence == 7
            patch = collection(feature("c", 10), remove=[7])
            assert await ask(node, "PATCH", body=patch) == (200, {"fences": 2})
            events = [await asyncio.wait_for(anext(depots.events()), PATIENCE_S) for _ in range(2)]
            assert [(one.event, one.fence, one.reason) for one in events] == [
                ("leave", 7, "removed"), ("enter", "c", ""),
            ]  # fmt: skip
            assert await ask(node, "DELETE") == (204, None)
            assert (await asyncio.wait_for(anext(depots.events()), PATIENCE_S)).reason == "removed"

    run(story())


def test_what_is_wrong_is_named_and_changes_nothing() -> None:
    bow = feature("bow", 0)
    bow["geometry"]["coordinates"] = [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]]

    async def story() -> None:
        async with service() as node:
            await ask(node, "PUT", body=collection(feature("a", 0)))
            for body, named in ((collection(bow), "'bow'"), (b"[", "no GeoJSON"), (b"", "GeoJSON")):
                status, told = await ask(node, "PUT", body=body)
                assert status == 400 and named in told["error"]
            missing = collection({**feature("a", 0), "id": None})
            assert (await ask(node, "PATCH", body=missing))[0] == 400
            assert (await ask(node, "GET"))[1]["features"] == [feature("a", 0)]

    run(story())


def test_only_who_may_change_a_set_sends_a_large_one(tmp_path: Path) -> None:
    (tmp_path / "tokens.toml").write_text(
        '[boss]\ntoken = "boss-secret"\nrole = "admin"\n'
        '[fleet]\ntoken = "fleet-secret"\nrole = "read"\nfences = ["fleet.*"]\n'
        '[page]\ntoken = "page-secret"\nrole = "publish"\nlisten_channels = ["a"]\n'
    )
    large = collection(*(feature(k, 10.0 * k) for k in range(1_000)))
    limits = LimitSettings(fences_bytes=2 * len(large))

    async def story() -> None:
        async with service(limits=limits, token_file=str(tmp_path / "tokens.toml")) as node:
            assert len(large) > limits.frame
            assert (await ask(node, "PUT", body=large))[0] == 413
            assert (await ask(node, "PUT", body=large, token="page-secret"))[0] == 413
            assert (await ask(node, "PUT", body=large, token="fleet-secret"))[0] == 413
            assert await ask(node, "PUT", body=large, token="boss-secret") == (
                200, {"fences": 1_000},
            )  # fmt: skip
            assert (await ask(node, "PUT", "/fences/fleet.1", large, "fleet-secret"))[0] == 200
            twice = collection(*(feature(k, 10.0 * k) for k in range(3_000)))
            assert (await ask(node, "PUT", body=twice, token="boss-secret"))[0] == 413
            small = collection(feature("a", 0))
            for method in ("PUT", "PATCH", "DELETE"):
                status, _ = await ask(node, method, body=small, token="page-secret")
                assert status == 403
            assert (await ask(node, "GET", token="page-secret"))[0] == 403
            assert (await ask(node, "GET", token="fleet-secret"))[0] == 200

    run(story())


def test_sets_are_listed_with_their_last_change_and_what_the_token_may_change(
    tmp_path: Path,
) -> None:
    (tmp_path / "tokens.toml").write_text(
        '[boss]\ntoken = "boss-secret"\nrole = "admin"\n'
        '[fleet]\ntoken = "fleet-secret"\nrole = "publish"\nfences = ["fleet.*"]\n'
        '[guest]\ntoken = "guest-secret"\nrole = "publish"\n'
        '[page]\ntoken = "page-secret"\nrole = "publish"\nlisten_channels = ["a"]\n'
    )

    async def story() -> None:
        async with service(token_file=str(tmp_path / "tokens.toml")) as node:

            async def listed(token: str) -> Any:
                return (await ask(node, "GET", "/fences", token=token))[1]

            assert await listed("boss-secret") == {"sets": [], "change": ["*"]}
            moments = []
            for names in ("ab", "a"):
                put = collection(*(feature(name, 0) for name in names))
                await ask(node, "PUT", "/fences/b", put, "boss-secret")
                await ask(node, "PATCH", "/fences/a", put, "boss-secret")
                first, second = (await listed("boss-secret"))["sets"]
                assert (first["name"], second["name"]) == ("a", "b")
                assert (first["fences"], second["fences"]) == (2, len(names))
                moments.append((first["changed"], second["changed"]))
            assert all(before < after for before, after in zip(*moments, strict=True))
            assert (await listed("fleet-secret"))["change"] == ["fleet.*"]
            assert (await listed("guest-secret"))["change"] == []
            assert (await ask(node, "GET", "/fences", token="page-secret"))[0] == 403

    run(story())


def test_features_without_ids_are_given_with_those_that_they_got() -> None:
    unnamed = [{k: v for k, v in feature("", x).items() if k != "id"} for x in (0, 10, 20)]

    async def story() -> None:
        async with service() as node:
            await ask(node, "PUT", body=collection(*unnamed))
            await ask(node, "PATCH", body=collection(remove=[0]))
            given = (await ask(node, "GET"))[1]["features"]
            assert given == [feature(1, 10), feature(2, 20)]

    run(story())


def test_a_last_place_is_known_by_its_name_until_it_expires() -> None:
    async def story() -> None:
        async with service() as node:
            async with nearcast.connect(address(node), name="truck") as truck:
                await truck.publish(point(3, 4), "parked", retain=True, ttl=600)
                while (await ask(node, "GET", "/entities/truck"))[0] == 404:
                    await asyncio.sleep(0)  # until the next flush
            while node.gateway.realm.recipients.find("truck"):
                await asyncio.sleep(0)  # until the node has noticed that the truck is gone
            found = (await ask(node, "GET", "/entities/truck"))[1]
            assert (found["x"], found["name"], found["payload"]) == (3.0, "truck", "parked")
            async with nearcast.connect(address(node), name="truck") as truck:
                await truck.publish(point(5, 5), retain=True)
                near = await truck.nearby(nearcast.disc(0, 0, 50))
                assert [one.x for one in near] == [5.0]
                found = (await ask(node, "GET", "/entities/truck"))[1]
                assert (found["x"], found["entity"]) == (5.0, truck.entity)

    run(story())
