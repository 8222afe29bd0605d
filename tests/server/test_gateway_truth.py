"""What clients receive over real sockets is exactly what the trace says they should."""

from pathlib import Path

from support.live_clients import crowd, judge, run, service


def test_a_crowd_with_all_kinds_of_areas_hears_exactly_the_truth(tmp_path: Path) -> None:
    trace = tmp_path / "trace"

    async def story() -> int:
        async with service(trace) as node:
            visitors = await crowd(node, clients=40, seconds=5.0, rate=6.0, seed=1)
        return judge(trace, visitors)

    assert run(story()) > 500
