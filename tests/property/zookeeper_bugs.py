"""Bugs to plant into the machines of the ZooKeeper log, each of a kind that has cost data: all must be seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from msgspec import structs

from barnabas.server.quorum.zookeeper.machine.appends import Appends
from barnabas.server.quorum.zookeeper.machine.effects import Effect, ProposalOutcome, Settled
from barnabas.server.quorum.zookeeper.machine.lease import ControllerLease
from barnabas.server.quorum.zookeeper.machine.live_nodes import LiveNodes
from barnabas.server.quorum.zookeeper.machine.log_view import ZooKeeperLogView
from barnabas.server.quorum.zookeeper.machine.node import ZooKeeperMachine
from barnabas.server.quorum.zookeeper.machine.reader import LogReader, ZooKeeperCall
from barnabas.server.quorum.zookeeper.machine.requests import (
    Answer,
    Check,
    Children,
    Create,
    FailureReason,
    Multi,
    Request,
    RequestFailed,
    SetData,
)
from barnabas.server.quorum.zookeeper.machine.upkeep import SnapshotUpkeep
from barnabas.server.quorum.zookeeper.machine.writer import Writer
from tests.property.zookeeper_plans import CUT, RESIGNING, SNAPPY, STORMY, ZOMBIES, Plan


@contextmanager
def _requests_become(change: Callable[[ZooKeeperMachine, Request], Request]) -> Iterator[None]:
    """The machine asks for something else than it should."""
    right = ZooKeeperMachine._next

    def wrong(self: ZooKeeperMachine, now_ms: int, wall_ms: int) -> ZooKeeperCall | None:
        ask = right(self, now_ms, wall_ms)
        return None if ask is None else ZooKeeperCall(change(self, ask.request), ask.on_answer)

    with patch.object(ZooKeeperMachine, "_next", wrong):
        yield


def _unchecked(request: Request) -> Request:
    if not isinstance(request, Multi):
        return request
    return Multi(
        tuple(structs.replace(op, version=-1) if isinstance(op, SetData | Check) else op for op in request.ops)
    )


def appends_are_not_fenced() -> AbstractContextManager[Any]:
    """Neither the epoch nor the tail is checked: a zombie writes on, and takes the tail back."""
    return _requests_become(lambda _, request: _unchecked(request))


def elected_without_having_read_all() -> AbstractContextManager[Any]:
    """The election does not demand the tail that was read."""

    def change(_: ZooKeeperMachine, request: Request) -> Request:
        election = isinstance(request, Multi) and any(isinstance(op, Create) and op.ephemeral for op in request.ops)
        return _unchecked(request) if election else request

    return _requests_become(change)


@contextmanager
def leadership_without_lease() -> Iterator[None]:
    """It leads until somebody tells it otherwise."""
    connected = ZooKeeperMachine.on_connected

    def on_connected(self: ZooKeeperMachine, session_id: int, timeout_ms: int) -> None:
        connected(self, session_id, timeout_ms)
        self._lease_ms = 10**9

    with patch.object(ZooKeeperMachine, "on_connected", on_connected):
        yield


@contextmanager
def the_lease_counts_from_the_answer() -> Iterator[None]:
    """An answer that waited while the node was stopped begins a lease that ZooKeeper does not know of."""
    right = ZooKeeperMachine.next_request
    answered = ZooKeeperMachine.on_answer
    now: dict[int, int] = {}

    def next_request(self: ZooKeeperMachine, now_ms: int, wall_ms: int) -> Request | None:
        if self._lease is not None and now.pop(id(self), None) is not None:
            self._lease.lease_until_ms = now_ms + self._lease_ms
        return right(self, now_ms, wall_ms)

    def on_answer(self: ZooKeeperMachine, answer: Answer) -> None:
        answered(self, answer)
        now[id(self)] = 1

    with (
        patch.object(ZooKeeperMachine, "next_request", next_request),
        patch.object(ZooKeeperMachine, "on_answer", on_answer),
    ):
        yield


@contextmanager
def any_answer_renews_the_lease() -> Iterator[None]:
    """And the heartbeat is a read, which a server answers that is cut off from the others."""
    right = ZooKeeperMachine._next

    def wrong(self: ZooKeeperMachine, now_ms: int, wall_ms: int) -> ZooKeeperCall | None:
        ask = right(self, now_ms, wall_ms)
        heartbeat = self._lease is not None and ask is not None and ask.request == Multi((self._lease.check,))
        return self._ask_controller() if heartbeat else ask

    def renew(self: ControllerLease, request: Request, answer: Answer, sent_ms: int, lease_ms: int) -> None:
        self.lease_until_ms = max(self.lease_until_ms, sent_ms + lease_ms)

    def on_answer(self: ZooKeeperMachine, answer: Answer) -> None:
        lost = isinstance(answer, RequestFailed) and answer.failure is FailureReason.CONNECTION_LOSS
        with patch.object(ControllerLease, "renew", right_renew if lost else renew):
            answered(self, answer)

    right_renew, answered = ControllerLease.renew, ZooKeeperMachine.on_answer
    with patch.object(ZooKeeperMachine, "_next", wrong), patch.object(ZooKeeperMachine, "on_answer", on_answer):
        yield


def _lost_answers_settle(outcome: ProposalOutcome) -> AbstractContextManager[Any]:
    right = Writer._on_appended

    def on_appended(self: Writer, answer: Answer, lease: Any, group: Any, tail: Any) -> list[Effect]:
        effects = right(self, answer, lease, group, tail)
        if (
            isinstance(answer, RequestFailed)
            and answer.failure is FailureReason.CONNECTION_LOSS
            and self._lease is lease
        ):
            for proposal in group:
                effects.append(Settled(proposal.token, proposal.batch.last_offset, outcome))
                self._appends._queue.popleft()
            self._next_offset -= sum(len(proposal.batch.records) for proposal in group)
        return effects

    return patch.object(Writer, "_on_appended", on_appended)


def a_lost_answer_means_no() -> AbstractContextManager[Any]:
    """The outcome of an append is unknown, and it is refused."""
    return _lost_answers_settle(ProposalOutcome.REFUSED)


def a_lost_answer_means_yes() -> AbstractContextManager[Any]:
    """The outcome of an append is unknown, and it is called committed."""
    return _lost_answers_settle(ProposalOutcome.COMMITTED)


def the_log_is_not_read_again() -> AbstractContextManager[Any]:
    """What is found in the log is not recognised as one's own, and is appended again."""
    return patch.object(Appends, "on_read", lambda self, batch: [])


def refused_before_it_is_known() -> AbstractContextManager[Any]:
    """When the leadership ends, what was sent is refused without waiting for a later epoch."""

    def step_down(self: Appends) -> list[Effect]:
        refused = [Settled(p.token, p.batch.last_offset, ProposalOutcome.REFUSED) for p in self._queue]
        self._queue.clear()
        return list(refused)

    return patch.object(Appends, "step_down", step_down)


def a_snapshot_settles_as_refused() -> AbstractContextManager[Any]:
    """What a snapshot covers is held to be not in the log."""
    right = Appends.on_snapshot
    return patch.object(
        Appends,
        "on_snapshot",
        lambda self, end: [structs.replace(s, outcome=ProposalOutcome.REFUSED) for s in right(self, end)],
    )


@contextmanager
def the_watch_is_forgotten() -> Iterator[None]:
    """A change that is told before the answer to the request that asked for it is taken for an old one."""
    on_tail = ZooKeeperLogView._on_tail

    def forget(self: ZooKeeperLogView, answer: Answer) -> list[Effect]:
        self._tail_stale = False
        return on_tail(self, answer)

    with patch.object(ZooKeeperLogView, "_on_tail", forget):
        yield


def watches_are_held_to_survive() -> AbstractContextManager[Any]:
    """After a new connection nothing is looked at again."""
    return patch.object(ZooKeeperMachine, "_mark_stale", lambda self: None)


def its_own_leftover_stays() -> AbstractContextManager[Any]:
    """An election that was won without the answer arriving leaves a /controller that nobody fills."""

    def on_controller(self: ZooKeeperMachine, answer: Answer) -> list[Effect]:
        effects = right(self, answer)
        self._leftover = None
        return effects

    right = ZooKeeperMachine._on_controller
    return patch.object(ZooKeeperMachine, "_on_controller", on_controller)


def election_after_resigning() -> AbstractContextManager[Any]:
    """The resignation took effect or did not, the answer is lost, and it finds itself in /controller."""

    def on_controller(self: ZooKeeperMachine, answer: Answer) -> list[Effect]:
        resigning, self._resigning = self._resigning, False
        effects = right(self, answer)
        self._resigning = resigning
        return effects

    right = ZooKeeperMachine._on_controller
    return patch.object(ZooKeeperMachine, "_on_controller", on_controller)


def entries_are_removed_too_early() -> AbstractContextManager[Any]:
    """A snapshot takes with it what comes after it."""

    def on_names(self: SnapshotUpkeep, answer: Answer, path: str, tail: Any) -> list[Effect]:
        return right(self, answer, path, structs.replace(tail, start_offset=tail.end_offset))

    right = SnapshotUpkeep._on_names
    return patch.object(SnapshotUpkeep, "_on_names", on_names)


def a_snapshot_counts_before_it_is_whole() -> AbstractContextManager[Any]:
    """The tail names it when its first chunk is there."""

    def finished(self: SnapshotUpkeep, tail: Any) -> Any:
        job = self._job
        if job is not None and job.written == 1:
            job.written = len(job.chunks)
        return right(self, tail)

    right = SnapshotUpkeep.finished
    return patch.object(SnapshotUpkeep, "finished", finished)


def an_entry_is_read_twice() -> AbstractContextManager[Any]:
    """The reader does not move on when it is far behind."""

    def on_entries(self: LogReader, answer: Answer, offsets: list[int]) -> list[Effect]:
        before = self.position
        effects = right(self, answer, offsets)
        if len(offsets) > 2:
            self.position = before
        return effects

    right = LogReader._on_entries
    return patch.object(LogReader, "_on_entries", on_entries)


def the_nodes_are_listed_once() -> AbstractContextManager[Any]:
    """The leader does not list the nodes again when one comes or goes."""
    return patch.object(LiveNodes, "look_again", lambda self: None)


def the_nodes_are_not_watched() -> AbstractContextManager[Any]:
    """The list of nodes is read without a watch."""
    return _requests_become(
        lambda _, request: structs.replace(request, watch=False) if isinstance(request, Children) else request
    )


BUGS: tuple[tuple[Callable[[], AbstractContextManager[Any]], Plan], ...] = (
    (appends_are_not_fenced, ZOMBIES),
    (elected_without_having_read_all, RESIGNING),
    (leadership_without_lease, STORMY),
    (the_lease_counts_from_the_answer, STORMY),
    (any_answer_renews_the_lease, CUT),
    (a_lost_answer_means_no, STORMY),
    (a_lost_answer_means_yes, STORMY),
    (the_log_is_not_read_again, STORMY),
    (refused_before_it_is_known, STORMY),
    (a_snapshot_settles_as_refused, SNAPPY),
    (the_watch_is_forgotten, STORMY),
    (watches_are_held_to_survive, STORMY),
    (its_own_leftover_stays, SNAPPY),
    (election_after_resigning, replace(RESIGNING, drop=0.1)),
    (entries_are_removed_too_early, STORMY),
    (a_snapshot_counts_before_it_is_whole, STORMY),
    (an_entry_is_read_twice, STORMY),
    (the_nodes_are_listed_once, STORMY),
    (the_nodes_are_not_watched, STORMY),
)
