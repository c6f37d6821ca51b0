"""Where records go."""

from __future__ import annotations

import random
from collections import Counter

from barnabas.client.producer.partitioner import KEY_CACHE_MAX, KeyHasher, StickyPartitioner
from barnabas.core.hashing import partition_for_key


def test_keys_go_where_java_puts_them() -> None:
    hasher = KeyHasher()
    for number in range(1_000):
        key = b"key-%d" % number
        assert hasher.partition(key, 7) == hasher.partition(memoryview(key), 7) == partition_for_key(key, 7)


def test_the_memory_for_keys_is_bounded() -> None:
    hasher = KeyHasher()
    for number in range(KEY_CACHE_MAX + 10):
        hasher.partition(number.to_bytes(4, "big"), 3)
    assert len(hasher._known) <= KEY_CACHE_MAX


def choices(sticky: StickyPartitioner, partitions: int, records: int, *, closed: bool = True) -> list[int]:
    made = []
    for _ in range(records):
        made.append(sticky.choose(partitions))
        sticky.on_appended(10, partitions, batch_closed=closed)
    return made


def test_keyless_records_stick_until_a_batch_is_full() -> None:
    made = choices(StickyPartitioner(100, random.Random(5)), 10, 1_000)
    runs = [made[start : start + 10] for start in range(0, 1_000, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert set(made) == set(range(10))


def test_an_open_batch_is_not_left_behind_at_once() -> None:
    made = choices(StickyPartitioner(100, random.Random(5)), 10, 40, closed=False)
    assert len(set(made[:20])) == 1


def test_long_queues_get_less() -> None:
    sticky = StickyPartitioner(1, random.Random(7))
    sticky.update_load({0: 0, 1: 9, 2: 4})
    counts = Counter(choices(sticky, 3, 6_000))
    assert counts[0] > counts[2] > counts[1] > 0


def test_partitions_without_a_leader_get_nothing() -> None:
    sticky = StickyPartitioner(1, random.Random(7))
    sticky.update_load({0: 0, 2: 0})
    assert set(choices(sticky, 3, 1_000)[1:]) == {0, 2}
    sticky.update_load({1: 0})
    assert set(choices(sticky, 3, 100)[1:]) == {1}
    sticky.update_load({})
    assert set(choices(sticky, 3, 1_000)) == {0, 1, 2}
