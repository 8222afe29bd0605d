"""Counters and the latency histogram, as Prometheus reads them."""

from nearcast.server.metrics import BOUNDS, COUNTERS, LatencyHistogram, Metrics, exposition


def test_a_percentile_is_the_bound_under_which_that_share_lies() -> None:
    latency = LatencyHistogram()
    latency.add(0.0004, 90)
    latency.add(0.015, 9)
    latency.add(9.0, 1)
    assert latency.percentile(0.5) == 0.0005
    assert latency.percentile(0.99) == 0.02
    assert latency.percentile(1.0) == BOUNDS[-1]
    assert LatencyHistogram().percentile(0.99) == 0.0


def test_every_counter_is_told_with_its_meaning() -> None:
    metrics = Metrics()
    metrics.deliveries = 7
    metrics.latency.add(0.003, 7)
    text = exposition(metrics, {"clients": ("Open.", 2)})
    lines = text.splitlines()
    assert "nearcast_deliveries_total 7" in lines
    assert "nearcast_clients 2" in lines
    assert 'nearcast_delivery_seconds_bucket{le="0.002"} 0' in lines
    assert 'nearcast_delivery_seconds_bucket{le="0.005"} 7' in lines
    assert 'nearcast_delivery_seconds_bucket{le="+Inf"} 7' in lines
    assert "nearcast_delivery_seconds_count 7" in lines
    named = {line.split()[2] for line in lines if line.startswith("# HELP")}
    assert {f"nearcast_{name}_total" for name in COUNTERS} < named
    assert set(metrics.snapshot()) == set(COUNTERS)


def test_no_name_is_told_twice() -> None:
    lines = [line.split()[0] for line in exposition(Metrics(), {}).splitlines() if line[0] != "#"]
    assert len(lines) == len(set(lines))
