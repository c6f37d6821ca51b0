"""The metrics of mirror partitions and links: lags that are known, a number for each state, troubles."""

from __future__ import annotations

from barnabas.core.telemetry import Metrics, render
from barnabas.server.links.fetching.states import MirrorState
from barnabas.server.links.fetching.values import UNKNOWN_POSITION, MirrorReport
from barnabas.server.monitoring.limits import LeftOut
from barnabas.server.monitoring.links import LinkMonitor

REPORTS = [
    MirrorReport("paris", "orders", 0, MirrorState.MIRRORING, UNKNOWN_POSITION, 120, 20, 4_000, 1_500, 1),
    MirrorReport("paris", "orders", 1, MirrorState.FAILED, UNKNOWN_POSITION, skipped_records=7),
    MirrorReport("rome", "t", 0, None, UNKNOWN_POSITION),
]


def test_what_is_known_has_samples() -> None:
    metrics = Metrics()
    metrics.collectors.append(
        LinkMonitor(lambda: REPORTS, lambda: {"paris": "groups: refused", "oslo": ""}, LeftOut()).collect
    )
    found = {line for line in render(metrics).splitlines() if "_link_" in line and not line.startswith("#")}
    partition = 'link="paris",topic="orders",partition="0"'
    assert {line for line in found if not line.endswith(" 0")} == {
        f"barnabas_link_lag_records{{{partition}}} 20",
        f"barnabas_link_lag_bytes{{{partition}}} 4000",
        f"barnabas_link_lag_seconds{{{partition}}} 1.5",
        'barnabas_link_partitions{link="paris",state="MIRRORING"} 1',
        'barnabas_link_partitions{link="paris",state="FAILED"} 1',
        'barnabas_link_partitions{link="rome",state="NEW"} 1',
        'barnabas_link_skipped_offsets{link="paris"} 7',
        'barnabas_link_trouble{link="paris"} 1',
    }
    assert 'barnabas_link_partitions{link="rome",state="FAILED"} 0' in found
    assert 'barnabas_link_trouble{link="oslo"} 0' in found
