"""After a commit: lost attempts are aborted, and the commit waits until consumers with read_committed see its rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

import pytest
from tests.logs import logged

from barnabas.client.values import HandedOverTransaction
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.spark.delivery import visible_commits
from barnabas.spark.delivery.names import SinkName
from barnabas.spark.delivery.visibility import (
    KNOWN_MAX,
    PAUSE_MAX_MS,
    PAUSE_MIN_MS,
    Holder,
    WaitedFor,
    hidden,
    newest_batches,
    next_pause_ms,
    warning,
)
from barnabas.spark.delivery.visible_commits import VisibleCommits

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
NAME = SinkName("p", "query")
OURS, LATE, FOREIGN = (
    NAME.transactional_id(run, 7, 0, attempt) for run, attempt in (("run-ours", 0), ("run-ours", 1), ("run-other", 0))
)


def test_rows_are_visible_when_the_last_stable_offset_is_above_their_newest_batch() -> None:
    newest = newest_batches([{A: 10, B: 3}, {A: 25}, {}, {A: 12}])
    assert newest == {A: 25, B: 3}
    assert hidden(newest, {A: 25, B: 3}) == [A, B]
    assert hidden(newest, {A: 26, B: 0}) == [B]
    assert hidden(newest, {A: 26, B: 4}) == []
    assert hidden(newest, {B: 4}) == [], "nobody waits for the rows of a deleted partition"


def test_pauses_grow_to_a_limit() -> None:
    pauses = [PAUSE_MIN_MS]
    for _ in range(8):
        pauses.append(next_pause_ms(pauses[-1]))
    assert pauses == [5, 10, 20, 40, 80, 160, 320, PAUSE_MAX_MS, PAUSE_MAX_MS]


def test_a_transaction_is_waited_for_once_and_the_memory_is_bounded() -> None:
    waited = WaitedFor()
    assert not waited
    waited.add({A: Holder(4, 100)})
    assert waited.has_all([A], {A: Holder(4, 100, "seen again", 5)})
    assert not waited.has_all([A], {A: Holder(4, 200)}), "the producer's next transaction"
    assert not waited.has_all([A, B], {A: Holder(4, 100)}), "nothing is known of the other partition"
    for n in range(KNOWN_MAX):
        waited.add({B: Holder(6, n)})
    assert not waited.has_all([A], {A: Holder(4, 100)})


def test_the_warning_names_partition_producer_and_age() -> None:
    holders = {A: Holder(4_000, 120, "billing-1", 1_000), B: Holder(7, 3, None, 41_000, is_last_write=True)}
    assert warning("the batch write is committed", 30_000, [B, A, TopicPartition("x", 0)], holders, 61_000) == (
        "the batch write is committed, but after 30 s consumers with read_committed do not see all of its rows. These"
        " are held back: orders-0 from offset 120 by the transaction of producer id 4000 (transactional id billing-1),"
        " open for 60 s; orders-1 from offset 3 by the transaction of producer id 7, its last record is 20 s old; x-0"
        " by a transaction that the brokers do not show. The transaction may belong to another program; the rows become"
        " visible when it ends. `barnabas transactions describe` shows it, `barnabas transactions fence` aborts it. To"
        " wait longer, set delivery.visible.timeout.ms"
    )
    many = [TopicPartition("t", n) for n in range(12)]
    assert "and 7 more partitions" in warning("it", 1, many, {}, 0)


class Cluster:
    """One partition, whose log has open transactions: transactional id -> first offset. Attempts in `late` begin when
    the last stable offset is asked for."""

    def __init__(self, open_since: dict[str, int], late: Iterable[str] = (), error: Exception | None = None) -> None:
        self.open_since = open_since
        self.late = list(late)
        self.error = error
        self.aborted: list[str] = []
        self.asked = 0
        self.now_ms = 1_000_000

    async def open_ids(self, name: SinkName) -> list[str]:
        return [each for each in self.open_since if name.is_attempt(each)]

    async def standing(self, transactional_ids: Iterable[str]) -> dict[str, HandedOverTransaction]:
        return {each: HandedOverTransaction(each, 1, 0) for each in transactional_ids if each in self.open_since}

    async def commit(self, transaction: HandedOverTransaction) -> object:
        raise AssertionError("nothing is committed here")

    async def abort(self, transaction: HandedOverTransaction) -> None:
        del self.open_since[transaction.transactional_id]
        self.aborted.append(transaction.transactional_id)

    async def stable(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        for each in self.late:
            self.open_since[each] = 5
        self.late.clear()
        return {A: min([100, *self.open_since.values()])}

    async def holders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Holder]:
        first = min(self.open_since, key=self.open_since.__getitem__)
        return {A: Holder(4_000, self.open_since[first], first, self.now_ms - 90_000)}

    def show(self, commits: VisibleCommits | None = None, *, timeout_ms: int = 20_000) -> bool:
        made = commits or VisibleCommits(self, self, lambda: self.now_ms)  # type: ignore[arg-type]
        return asyncio.run(made.show((NAME, "run-ours"[:8]), "micro-batch 7 is committed", {A: 50}, timeout_ms))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible_commits, "PAUSE_MIN_MS", 1)
    monkeypatch.setattr(visible_commits, "OTHERS_MS", 4)
    monkeypatch.setattr(visible_commits, "next_pause_ms", lambda pause_ms: min(4, pause_ms * 2))


def test_lost_attempts_of_the_run_are_aborted_and_no_others() -> None:
    cluster = Cluster({OURS: 10, FOREIGN: 90})
    assert cluster.show()
    assert (cluster.aborted, list(cluster.open_since)) == ([OURS], [FOREIGN])


def test_an_attempt_that_begins_late_is_aborted_while_the_commit_waits() -> None:
    cluster = Cluster({}, late=[LATE])
    assert cluster.show()
    assert cluster.aborted == [LATE]


def test_with_a_time_out_of_zero_lost_attempts_are_aborted_and_nothing_is_waited_for() -> None:
    cluster = Cluster({OURS: 10, FOREIGN: 20})
    assert not cluster.show(timeout_ms=0)
    assert (cluster.aborted, cluster.asked) == ([OURS], 0)


def test_the_wait_ends_with_a_warning_and_is_not_repeated_for_the_same_transaction(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster({"somebody-else": 20})
    commits = VisibleCommits(cluster, cluster, lambda: cluster.now_ms)  # type: ignore[arg-type]
    assert not cluster.show(commits, timeout_ms=30)
    assert (
        "orders-0 from offset 20 by the transaction of producer id 4000 (transactional id somebody-else)" in caplog.text
    )
    assert "open for 90 s" in caplog.text
    warnings = logged(caplog, "barnabas.spark")
    assert not cluster.show(commits, timeout_ms=1_000_000), "a second wait would never end"
    assert logged(caplog, "barnabas.spark") == warnings
    cluster.open_since.clear()
    assert cluster.show(commits)


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), TimeoutError()])
def test_a_commit_does_not_fail_because_it_cannot_see_its_rows(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    assert not Cluster({FOREIGN: 1}, error=error).show()
    assert "micro-batch 7 is committed" in caplog.text


def check_commits(timeout_ms: int) -> None:
    """A reader that starts when the commit has returned sees its rows, unless somebody else's transaction is open."""
    for open_since, late, expected in (
        ({OURS: 10}, [], True),
        ({}, [LATE], True),
        ({FOREIGN: 90}, [LATE], True),
        ({"somebody-else": 20}, [], False),
    ):
        cluster = Cluster(dict(open_since), late)
        shown = cluster.show(timeout_ms=timeout_ms if expected else 30)
        sees = asyncio.run(cluster.stable([A]))[A] > 50
        assert (shown, sees) == (expected, expected), f"{open_since}, {late}: the rows of the commit are not visible"


def test_the_rows_of_a_commit_are_visible_when_it_returns() -> None:
    check_commits(timeout_ms=20_000)


def not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible_commits, "hidden", lambda newest, stable: ())


def attempts_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def abort_lost(self: VisibleCommits, name: SinkName, run: str) -> int:
        return 0

    monkeypatch.setattr(VisibleCommits, "abort_lost", abort_lost)


@pytest.mark.parametrize("plant", [not_waited_for, attempts_stay_open])
def test_planted_bugs_are_caught(monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="not visible"):
        check_commits(timeout_ms=30)
