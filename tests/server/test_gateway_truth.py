"""What clients receive over real sockets is exactly what the trace says they should."""

from pathlib import Path

from support.live_clients import check_deliveries, run, run_clients, service


def test_clients_with_all_kinds_of_areas_receive_exactly_the_truth(tmp_path: Path) -> None:
    trace = tmp_path / "trace"

    async def story() -> int:
        async with service(trace) as node:
            clients = await run_clients(node, count=40, seconds=5.0, rate=6.0, seed=1)
        return check_deliveries(trace, clients)

    assert run(story()) > 500
