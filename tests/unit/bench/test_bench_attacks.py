"""Every API that brokers serve has its largest request in the table of attacks, or a reason why not."""

from __future__ import annotations

from uuid import UUID

import pytest
from bench.attacks.before import BEFORE_CPU_MS, BEFORE_MS
from bench.attacks.largest import LARGEST, NOT_ATTACKED, element_count, entries_of, wire_bytes
from bench.attacks.registry import ATTACKS
from bench.attacks.shapes import SHAPES
from bench.bystander import PUBLISHED, Latencies, Row, load_attacks, published

from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.compile_decoder import REQUEST_ELEMENTS_MAX
from barnabas.server.broker.apis import BROKER_APIS

load_attacks()


def test_every_api_is_attacked_or_says_why_not() -> None:
    served = {ApiKey(key) for key in BROKER_APIS.by_key}
    attacked = {attack.api for attack in ATTACKS.values() if attack.api is not None}
    assert served - attacked - NOT_ATTACKED.keys() == set(), "add the API to bench/attacks/largest.py"
    assert (attacked | NOT_ATTACKED.keys()) - served == set()
    assert attacked & NOT_ATTACKED.keys() == set()


ROWS = {f"largest-{api.name}": (api, row) for api, row in LARGEST.items()}
ROWS.update({name: (api, row) for name, (api, _, row) in SHAPES.items()})


@pytest.mark.parametrize("name", ROWS)
def test_the_largest_request_is_one_that_brokers_decode(name: str) -> None:
    api, row = ROWS[name]
    route = BROKER_APIS.by_key[api]
    assert route.min_version <= row.version <= route.max_version
    entries = entries_of(row)
    assert entries >= min(5_000, row.entries_max)
    request = row.build(UUID(int=1), entries)
    assert type(request).__schema__.key == api
    assert wire_bytes(request, row.version) <= row.bytes_max
    assert element_count(request) <= REQUEST_ELEMENTS_MAX


def test_the_published_table_has_what_each_attack_sends_before_and_after() -> None:
    quiet, during = Latencies(0.5, 2.0, 3.0), Latencies(4.0, 41.2, 60.0)
    row = Row("regex", quiet, during, "3 ms ConsumerGroupHeartbeat", "12 ms", 0.1, (50, 53), "answered", 1.5)
    sheet = published([row], {})
    what = ATTACKS["regex"].what
    assert sheet.rows == [(what, "at most 6,600 ms", "", "0.5 / 2.0 ms", "4.0 / 41 ms", "12 ms", "53 MB")]
    before = Row("regex", quiet, Latencies(9.0, 6_000.0, 6_600.0), "", "", 0.1, (50, 800), "answered", 1.5)
    sheet = published([row], {"regex": before})
    assert sheet.rows == [(what, "9.0 / 6,000 ms", "800 MB", "0.5 / 2.0 ms", "4.0 / 41 ms", "12 ms", "53 MB")]
    assert BEFORE_MS.keys() | BEFORE_CPU_MS.keys() | set(PUBLISHED) <= ATTACKS.keys()
