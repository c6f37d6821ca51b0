"""The persistent map behaves as a dict, and shares what it can."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from barnabas.server.metadata.image.persistent import PersistentMap

keys = st.one_of(
    st.text(max_size=3), st.integers(-50, 500), st.uuids(), st.tuples(st.integers(0, 3), st.text(max_size=2))
)


@given(st.lists(st.tuples(st.dictionaries(keys, st.integers(), max_size=8), st.lists(keys, max_size=4)), max_size=12))
def test_it_is_a_dict_that_never_changes(steps: list[tuple[dict[object, int], list[object]]]) -> None:
    model: dict[object, int] = {}
    present: PersistentMap[object, int] = PersistentMap()
    for updates, removals in steps:
        before, snapshot = present, dict(present)
        present = present.evolve(updates, removals)
        for key in removals:
            model.pop(key, None)
        model.update(updates)
        assert dict(present) == model
        assert len(present) == len(model)
        assert present == PersistentMap.of(model)
        assert all(present[key] == value and key in present for key, value in model.items())
        assert dict(before) == snapshot
    assert present.get("no such key at all") is None


def test_growing_spreads_it_over_shards_and_small_changes_copy_little() -> None:
    big: PersistentMap[str, int] = PersistentMap()
    for start in range(0, 20_000, 1000):
        big = big.evolve({f"topic-{number}": number for number in range(start, start + 1000)})
    assert len(big._shards) >= 256
    changed = big.evolve({"topic-77": -1})
    shared = sum(old is new for old, new in zip(big._shards, changed._shards, strict=True))
    assert shared == len(big._shards) - 1
    assert (big["topic-77"], changed["topic-77"]) == (77, -1)


def test_order_does_not_depend_on_the_process() -> None:
    made = PersistentMap.of({f"t{number}": number for number in range(200)})
    assert list(made)[:4] == sorted(made, key=list(made).index)[:4]
    assert list(PersistentMap.of({UUID(int=5): 1, UUID(int=2): 2})) == [UUID(int=5), UUID(int=2)]


def test_removing_what_is_absent_changes_nothing() -> None:
    one: PersistentMap[str, int] = PersistentMap.of({"a": 1})
    assert one.evolve({}, ["b"]) is one
    assert one != {"a": 2}
    assert one == {"a": 1}
