"""What clients receive over real sockets is exactly what the trace says they should."""

from collections import defaultdict
from pathlib import Path

import pytest

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.server import workers
from support.live_clients import (
    LiveClient,
    check_deliveries,
    join_client,
    run,
    run_clients,
    service,
)


def test_clients_with_all_kinds_of_areas_receive_exactly_the_truth(tmp_path: Path) -> None:
    trace = tmp_path / "trace"

    async def story() -> int:
        async with service(trace) as node:
            clients = await run_clients(node, count=40, seconds=5.0, rate=6.0, seed=1)
        return check_deliveries(trace, clients)

    assert run(story()) > 500


def test_several_workers_deliver_all_in_order_while_clients_come_and_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "PART", 3)
    packed, often = messages.MSGPACK, 30

    async def story() -> list[LiveClient]:
        async with service(workers=3, prompt=0.0, flush_ms=20.0) as node:
            clients = [await join_client(node, f"c{number}", packed) for number in range(24)]
            for client in clients:
                await client.ask(messages.SubscribeRequest, 1, Area(x=0.0, y=0.0, r=100.0))
            for turn in range(often):
                for client in clients:
                    payload = packed.encode_payload(turn)
                    client.send_request(messages.PublishRequest(1.0, 2.0, payload))
                if turn % 2:  # some are read and written to at this moment
                    clients[-1].transport.disconnect()
                    del clients[-1]
                await clients[turn % len(clients)].ask(messages.PublishRequest, 1e9, 1e9)
            for _ in range(2):
                for client in clients:
                    await client.ask(messages.PublishRequest, 1e9, 1e9)
            return clients

    clients = run(story())
    everybody = {client.entity for client in clients}
    for client in clients:
        heard: dict[int, list[int]] = defaultdict(list)
        for message in client.of(messages.MessageNotice):
            heard[message.source].append(packed.decode_payload(message.payload))
        assert all(turns == list(range(len(turns))) for turns in heard.values())
        for other in everybody - {client.entity}:
            assert len(heard[other]) == often
