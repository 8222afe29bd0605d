"""docs/reference/wire.md and config.md say what is so: every word, field, default, form, limit."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from msgspec.structs import fields
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from nearcast.client_protocol import close_codes, messages, websocket_framing
from nearcast.client_protocol.geometry_json import EARTH, Area, Geometry, region_from_area
from nearcast.errors import ConfigError
from nearcast.model import rates
from nearcast.model.subscription import Value
from nearcast.server import gateway
from nearcast.server.access.tokens import read_tokens
from nearcast.server.config import KEYS, default_file, load_settings, meanings
from nearcast.server.http import api, protocol, upgrade
from nearcast.server.server import Server
from nearcast.service import throttling
from nearcast.service.access.grants import Claims
from support.join_targets import address, quiet, run
from support.patience import PATIENCE_S

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
WIRE = (REFERENCE / "wire.md").read_text(encoding="utf-8")
CONFIG = (REFERENCE / "config.md").read_text(encoding="utf-8")

TYPES: dict[Any, str] = {
    int: "integer", float: "number", str: "text", bool: "boolean", msgspec.Raw: "any",
    int | None: "integer", float | None: "number", str | None: "text",
    dict[str, Value]: "object of values", dict[str, float]: "object of numbers",
    list[int]: "list of integers", list[str]: "list of texts",
    list[tuple[float, float]]: "list of [number, number]",
    list[list[float]] | None: "list of lists of numbers",
    dict[str, Any] | None: "object", tuple[float, float] | None: "[number, number]",
    tuple[float, float, float, float] | None: "[number, number, number, number]", Geometry: "text",
    Area: "area", messages.EntityState: "entity", list[messages.EntityState]: "list of entities",
    messages.EntityState | None: "entity", list[messages.FenceEventName]: "list of texts",
    messages.EvolutionKind | Literal[""]: "text",
    messages.FenceEventName: "text", messages.LeaveReasonName: "text",
    messages.FencePlace: "place", messages.FencePlace | None: "place",
    list[dict[str, Any]]: "list of objects", list[messages.FeatureId]: "list of ids",
    messages.FeatureId | None: "id", messages.EntityKey: "text or integer",
    list[float]: "list of numbers",
}  # fmt: skip


def section(text: str, title: str) -> str:
    """What stands under a heading, up to the next one."""
    begin = re.search(rf"^#+ {re.escape(title)}$", text, re.MULTILINE)
    assert begin is not None, f"there is no section {title!r}"
    following = re.search(r"^#+ ", text[begin.end() :], re.MULTILINE)
    return text[begin.end() :][: following.start() if following else None]


def rows(text: str, head: str) -> list[list[str]]:
    """The cells of the first table with this head."""
    lines = iter(text.splitlines())
    assert any(line.startswith(head) for line in lines), f"there is no table {head}"
    next(lines)
    table = []
    for line in lines:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return table


def default(field: Any) -> str:
    if field.required:
        return "required"
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    else:
        value = field.default
    if value is None or value is messages.NO_PAYLOAD:
        return "–"
    return f"`{msgspec.json.encode(value).decode()}`"


def described(message: type[msgspec.Struct]) -> list[list[str]]:
    """The table of a message without the meanings."""
    return [
        [str(number), f"`{field.encode_name}`", TYPES[field.type], default(field)]
        for number, field in enumerate(fields(message), 1)
    ]


MESSAGES = [
    *(("request", number, message) for number, message in enumerate(messages.REQUESTS, 1)),
    *(("notice", number, message) for number, message in enumerate(messages.NOTICES, 1)),
]


@pytest.mark.parametrize(("kind", "number", "message"), MESSAGES)
def test_every_message_is_described_with_all_its_fields(
    kind: str, number: int, message: type[msgspec.Struct]
) -> None:
    tag = message.__struct_config__.tag
    table = rows(section(WIRE, f"{tag}: {kind} {number}"), "| # | field")
    assert [row[:4] for row in table] == described(message)
    assert all(row[4] for row in table)


@pytest.mark.parametrize(
    ("title", "kind"),
    [("Areas", Area), ("entity", messages.EntityState), ("place", messages.FencePlace)],
)
def test_areas_and_entities_are_described_with_all_their_fields(
    title: str, kind: type[msgspec.Struct]
) -> None:
    table = rows(section(WIRE, title), "| # | field")
    assert [row[:4] for row in table] == described(kind)
    assert all(row[4] for row in table)


def test_no_message_or_field_is_described_that_does_not_exist() -> None:
    titles = re.findall(r"^### (\w+): (\w+) (\d+)$", WIRE, re.MULTILINE)
    assert len(titles) == len(MESSAGES)
    assert f"version {messages.VERSION}" in WIRE.splitlines()[0]


def test_the_documented_areas_are_accepted_as_written() -> None:
    written = [row[1].strip("`") for row in rows(section(WIRE, "Areas"), "| area | written")]
    for text in written:
        region_from_area(msgspec.json.decode(text, type=Area))
    assert len(written) == 11
    on_earth = rows(section(WIRE, "Earth"), "| area on Earth | written")
    written = [row[1].strip("`") for row in on_earth]
    for text in written:
        region_from_area(msgspec.json.decode(text, type=Area), EARTH)
    assert len(written) == 11


def test_the_two_encodings_are_equivalent() -> None:
    examples = rows(section(WIRE, "Two encodings"), "| JSON | MessagePack")
    assert len(examples) == 10
    for as_json, as_hex in ((row[0].strip("`"), row[1].strip("`")) for row in examples):
        reads = messages.JSON.read_request if '"do"' in as_json else messages.JSON.read_notice
        message = reads(as_json.encode())
        if getattr(message, "payload", messages.NO_PAYLOAD) is not messages.NO_PAYLOAD:
            payload = messages.MSGPACK.encode_payload(messages.JSON.decode_payload(message.payload))
            message = msgspec.structs.replace(message, payload=payload)
        assert messages.MSGPACK.encode(message).hex(" ") == as_hex


def test_the_documented_limits_are_those_of_the_code() -> None:
    documented = [[row[0].strip("`"), *row[1:]] for row in rows(section(WIRE, "Limits"), "| limit")]
    limits = {key.removeprefix("limits."): key for key in KEYS if key.startswith("limits.")}
    assert documented == [
        [name, repr(KEYS[key][1]), meanings()[key]] for name, key in limits.items()
    ]


def test_the_documented_close_codes_are_those_of_the_code() -> None:
    table = rows(section(WIRE, "Close codes"), "| code")
    assert table == [
        [str(code.value), meaning] for code, meaning in close_codes.CLOSE_CODE_MEANINGS.items()
    ]
    assert list(close_codes.CLOSE_CODE_MEANINGS) == list(close_codes.CloseCode)


def test_numbers_in_the_documentation_are_those_of_the_node() -> None:
    text = " ".join(WIRE.split())
    for sentence in (
        f"silent for {upgrade.PING_S:g} seconds is sent a WebSocket ping",
        f"waits {websocket_framing.CLOSE_GRACE_S:g} seconds for the client's close frame",
        f"payload and {throttling.MESSAGE_OVERHEAD} for each message",
        f"0 for none at all, or at least {rates.SLOWEST:g}",
        f"keeps at most {api.NAMES:,} such names",
        f"headers must have come within {protocol.HEAD_S:g} seconds, "
        f"its body within {protocol.BODY_S:g}",
        f"each {protocol.PACE:,} bytes; an answer must be read at the same pace",
        f"requests is closed after {protocol.IDLE_S:g} seconds",
    ):
        assert sentence in text
    assert (rates.RULES, gateway.TICK_S) == (4, 0.1), "at most four pairs; ten times a second"


class JsonClient(WSListener):
    def __init__(self) -> None:
        self.transport: WSTransport
        self.received: asyncio.Queue[str] = asyncio.Queue()

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.TEXT:
            self.received.put_nowait(frame.get_payload_as_utf8_text())
        else:
            transport.disconnect()


def timeless(message: Any) -> Any:
    """Without moments, and of the limits only that there are some."""
    if isinstance(message, dict):
        return {
            key: bool(value) if key == "limits" else timeless(value)
            for key, value in message.items()
            if key != "t"
        }
    return [timeless(part) for part in message] if isinstance(message, list) else message


def test_the_documented_session_works_as_written() -> None:
    block = re.search(r"```session\n(.*?)```", WIRE, re.DOTALL)
    assert block is not None
    lines = [line.split(" ", 2) for line in block[1].splitlines()]
    assert len(lines) > 20

    async def story() -> None:
        async with Server(quiet(name="n1")) as service:
            clients: dict[str, JsonClient] = {}
            for who, way, frame in lines:
                if who not in clients:
                    clients[who] = JsonClient()
                    await ws_connect(lambda who=who: clients[who], address(service))
                if way == ">":
                    clients[who].transport.send(WSMsgType.TEXT, frame.encode())
                else:
                    received = await asyncio.wait_for(clients[who].received.get(), PATIENCE_S)
                    assert timeless(json.loads(received)) == timeless(json.loads(frame)), received
            assert all(client.received.empty() for client in clients.values())

    run(story())


def test_the_documented_settings_are_those_of_the_code() -> None:
    assert f"```toml\n{default_file()}```" in CONFIG


def test_the_documented_tokens_are_accepted_as_written(tmp_path: Path) -> None:
    block = re.findall(r"```toml\n(.*?)```", CONFIG, re.DOTALL)[-1]
    (tmp_path / "tokens.toml").write_text(block)
    grants = {grant.holder: grant for grant in read_tokens(tmp_path / "tokens.toml").values()}
    assert [grant.role for grant in grants.values()] == ["admin", "publish", "read"]
    assert grants["token:thermometers"].within is not None
    assert grants["token:dashboard"].listen_within is not None


def test_every_field_of_a_token_is_explained() -> None:
    table = CONFIG.partition("## Tokens with roles")[2].partition("## JSON Web Tokens")[0]
    explained = re.findall(r"^\| `(\w+)` \| .", table, re.MULTILINE)
    assert explained == [field.name for field in fields(Claims)]


def test_a_wrong_name_is_refused_as_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nearcast.toml").write_text("# mine\n\n\nporrt = 9000\n")
    with pytest.raises(ConfigError) as why:
        load_settings(Path("nearcast.toml"))
    assert f"nearcast: {why.value}\n" in CONFIG
