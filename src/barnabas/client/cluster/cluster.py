"""Shell: the view that a client has of a Kafka cluster: connections, partition leaders, coordinators.

Connections are opened and metadata is requested on demand; there is no periodic task. Concurrent callers that need the
same connection or metadata share one attempt. All deadlines are in seconds of the running loop's clock.

    cluster = Cluster(ClusterConfig.of(bootstrap_servers="localhost:9092"))
    async with cluster:
        view = await cluster.topic("orders")
        response = await cluster.send(view.partitions[0].leader, request)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import warnings
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from barnabas.client.cluster.connections import open_pool
from barnabas.client.cluster.coordinators import Coordinators, CoordinatorType
from barnabas.client.cluster.metadata import BrokerAddress, MetadataCache, TopicDescription, TopicPartitionInfo
from barnabas.client.cluster.versions import Versioned
from barnabas.client.errors import (
    BootstrapError,
    BrokerUnreachableError,
    ClientClosedError,
    RequestTimeoutError,
)
from barnabas.client.options import ClusterConfig
from barnabas.client.problems import Problems
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.rng import Rng, secure_rng
from barnabas.protocol.transport.connection_config import Destination
from barnabas.protocol.transport.outgoing_connection import (
    STALLED_S,
    ConnectionOpener,
    OutgoingConnection,
    open_connection,
)
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.wire.schema import schema_of

T = TypeVar("T")

log = logging.getLogger("barnabas.client")

TOPICS_PER_REQUEST_MAX = 10_000
CLUSTER = "the cluster"
"""The subject of a problem with all brokers."""


class Cluster:
    """The connections and the metadata of one cluster, shared by all parts of one client. For one event loop only."""

    def __init__(
        self, options: ClusterConfig, *, rng: Rng | None = None, opener: ConnectionOpener = open_connection
    ) -> None:
        self.options = options
        self.rng = rng or secure_rng()
        self.metadata = MetadataCache()
        self.coordinators = Coordinators(self)
        self._pool = open_pool(options, self.rng, opener)
        self._pool.on_stalled = self._on_stalled
        self._doubted: tuple[str, int] | None = None
        """The address of a broker that does not lead what it leads by its own metadata, so that another broker is asked
        for the next metadata: the broker may be cut off from the cluster."""
        self._search: asyncio.Task[None] | None = None
        """Looks for the successors of a leader or coordinator that does not answer."""
        self._asking: set[asyncio.Task[None]] = set()
        """Ask questions again of other brokers than the one that does not answer."""
        self.problems = Problems()
        """What fails and is tried again; logged seldom."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._metadata_lock = asyncio.Lock()
        self._metadata_at = float("-inf")
        self._closed = False

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self.options.bootstrap_servers)
        known = f", {len(self.metadata.brokers)} brokers" if self.metadata.brokers else ", not connected yet"
        return f"<cluster at {servers}{known}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection. Unanswered requests fail."""
        self._closed = True
        tasks = self._cancel_tasks()
        if tasks:
            await asyncio.wait(tasks)
        await self._pool.close()

    def _cancel_tasks(self) -> list[asyncio.Task[None]]:
        tasks = [*self._asking, *(() if self._search is None else (self._search,))]
        for task in tasks:
            task.cancel()
        return tasks

    def abandon(self) -> None:
        """Count as closed without closing anything, because the process ends."""
        self._closed = True

    def drop(self, owner: object, left: str = "") -> None:
        """Warn that `owner`, an object that is being deleted, was not closed, if it has opened connections; and close
        them without waiting. `left` is a sentence about what is lost."""
        if self._closed or not self._pool.is_used:
            return
        self._closed = True
        self._cancel_tasks()
        warnings.warn(f"{owner!r} was not closed; call close().{left}", ResourceWarning, stacklevel=3, source=owner)
        if left:
            log.error("%r was not closed.%s Call flush() or close() before the program ends.", owner, left)
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._pool.abort()

    # -- time ------------------------------------------------------------------------------------------------------

    @staticmethod
    def now() -> float:
        return asyncio.get_running_loop().time()

    def deadline(self, timeout_ms: float | None = None) -> float:
        """The loop time after `timeout_ms`; None means request.timeout.ms."""
        return self.now() + (self.options.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000.0

    async def backoff(self, attempt: int, deadline: float | None = None) -> None:
        """Sleep before retry number `attempt` (retry.backoff.ms), at most until the deadline."""
        delay = self.options.retry_backoff.delay_ms(attempt, self.rng) / 1000.0
        if deadline is not None:
            delay = min(delay, max(deadline - self.now(), 0.0))
        await asyncio.sleep(delay)

    # -- requests --------------------------------------------------------------------------------------------------

    async def reach(self) -> None:
        """Check that the cluster answers within `socket.connection.setup.timeout.ms`. Raises BootstrapError or another
        KafkaError.

        Other calls retry until their own deadlines, because the cluster may be starting. Call this first to fail early.
        """
        if not self.metadata.brokers:
            await self.refresh(deadline=self.deadline(self.options.connect_timeout_ms), quiet=True)

    async def connection(
        self, broker_id: int, deadline: float | None = None, *, purpose: str = ""
    ) -> OutgoingConnection:
        """An open, negotiated connection to a broker. Raises BrokerUnreachableError."""
        if self._closed:
            raise ClientClosedError("This client")
        broker = self.metadata.brokers.get(broker_id)
        if broker is None:
            await self.refresh(deadline=deadline)
            broker = self.metadata.brokers.get(broker_id)
        if broker is None:
            raise BrokerUnreachableError(
                f"Broker {broker_id} is not in the cluster's metadata; it is down, or has been removed."
            )
        return await self._pool.connection(_destination(broker, purpose), deadline)

    async def send(
        self,
        broker_id: int,
        request: Any,
        *,
        deadline: float | None = None,
        max_version: int | None = None,
        purpose: str = "",
    ) -> Any:
        """Send one request to one broker and return the decoded response, also if that has error codes. No retries.

        `request` is a message, or a `Versioned` for content that depends on the version. Requests with
        different purposes use separate connections (a group's coordinator gets one, so that a long poll does not delay
        heartbeats).
        Raises BrokerUnreachableError, RequestTimeoutError, UnsupportedApiError.
        """
        if self._closed:
            raise ClientClosedError("This client")
        if deadline is None:
            deadline = self.deadline()
        broker = self.metadata.brokers.get(broker_id)
        if broker is None:
            await self.connection(broker_id, deadline)
            broker = self.metadata.brokers[broker_id]
        connection = await self._pool.connection(_destination(broker, purpose), deadline)
        return await (await self._post(connection, request, deadline, deadline, max_version))

    async def send_any(self, request: Any, *, deadline: float | None = None, max_version: int | None = None) -> Any:
        """Send over the open connection with the fewest unanswered requests, or else to any broker in reach."""
        if deadline is None:
            deadline = self.deadline()
        connection = await self._any_connection(deadline)
        return await (await self._post(connection, request, deadline, deadline, max_version))

    async def ask_any(self, request: Any, *, deadline: float | None = None) -> Any:
        """`send_any`, for a question that any broker can answer: after a second without an answer, others are asked."""
        if deadline is None:
            deadline = self.deadline()
        connection = await self._any_connection(deadline)
        answer = await self._post(connection, request, deadline, deadline)
        if len(self.metadata.brokers) < 2:
            return await answer  # no other broker is known
        timer = asyncio.get_running_loop().call_later(STALLED_S, self._ask_others, request, deadline, answer)
        try:
            return await answer
        finally:
            timer.cancel()

    def _ask_others(self, request: Any, deadline: float, answer: asyncio.Future[Any]) -> None:
        async def ask() -> None:
            with contextlib.suppress(KafkaError):
                response = await self._ask_in_turn(request, deadline, again=True)
                if not answer.done():
                    answer.set_result(response)

        if not self._closed:
            asking = asyncio.get_running_loop().create_task(ask(), name="ask another broker")
            self._asking.add(asking)
            asking.add_done_callback(self._asking.discard)

    async def _ask_in_turn(self, request: Any, deadline: float, *, again: bool = False) -> Any:
        """Ask one broker, and another one while the first does not answer. The first response counts. With `again`, one
        was asked before: another one that cannot be reached at once is passed over, too."""
        asked: dict[asyncio.Future[Any], OutgoingConnection] = {}
        try:
            while True:
                try:
                    limit = min(deadline, self.now() + STALLED_S) if asked or again else deadline
                    connection = await self._any_connection(limit)
                    if connection not in asked.values():
                        asked[await self._post(connection, request, limit, deadline)] = connection
                except KafkaError:
                    if not asked and (not again or self.now() >= deadline):
                        raise
                if not asked:
                    await asyncio.sleep(STALLED_S)
                    continue
                done, _ = await asyncio.wait(asked, timeout=STALLED_S, return_when=asyncio.FIRST_COMPLETED)
                for answer in done:
                    del asked[answer]
                    if answer.exception() is None or not asked:
                        return answer.result()
        finally:
            for answer in asked:
                answer.cancel()

    async def send_controller(self, request: Any, *, deadline: float | None = None) -> Any:
        """Send to the broker that the metadata names as controller (with KRaft, any broker forwards the request)."""
        if self.metadata.controller_id not in self.metadata.brokers:
            await self.refresh(deadline=deadline)
        if self.metadata.controller_id not in self.metadata.brokers:
            return await self.send_any(request, deadline=deadline)
        try:
            return await self.send(self.metadata.controller_id, request, deadline=deadline)
        except BrokerUnreachableError:
            await self.refresh(deadline=deadline)  # the next attempt goes to the controller of the new metadata
            raise

    async def send_coordinator(
        self, kind: CoordinatorType, key: str, request: Any, *, deadline: float | None = None, purpose: str = ""
    ) -> Any:
        """Send to the coordinator of a group, a transactional id or a share group, after looking up the coordinator."""
        broker_id = await self.coordinators.find(kind, key, deadline=deadline)
        return await self.send(broker_id, request, deadline=deadline, purpose=purpose)

    async def _post(
        self,
        connection: OutgoingConnection,
        request: Any,
        write_by: float,
        deadline: float,
        max_version: int | None = None,
    ) -> asyncio.Future[Any]:
        """Write a request as soon as the connection takes it. Returns the future of its response."""
        if isinstance(request, Versioned):
            version = connection.choose_version(request.api_key, max_version=max_version, unstable=request.unstable)
            request = request.build(version)
        else:
            version = connection.choose_version(ApiKey(schema_of(request).key), max_version=max_version)
        await connection.wait_writable(write_by)
        return connection.send(request, version, min(deadline, self.deadline()))

    async def _any_connection(self, deadline: float) -> OutgoingConnection:
        if self._closed:
            raise ClientClosedError("This client")
        best = self._pool.least_busy(self._is_doubted)
        limit = deadline
        if best is not None and best.stalled_since is None:
            if not self._is_doubted(best.to):
                return best
            limit = min(deadline, self.now() + STALLED_S)  # it will do if no other broker can be reached soon
        failures: list[str] = []
        candidates = [node for node in self._candidates() if not self._has_stalled(node)]
        candidates.sort(key=self._is_doubted)
        for index, node in enumerate(candidates):
            left = max(limit - self.now(), 0.0)
            try:  # each server gets its share of the time: one that drops packets must leave time for the next
                return await self._pool.connection(node, self.now() + left / (len(candidates) - index))
            except BrokerUnreachableError as error:
                failures.append(str(error))
            if self.now() >= limit:
                break
        if best is not None and best.alive:
            return best
        servers = ",".join(f"{host}:{port}" for host, port in self.options.bootstrap_servers)
        raise BootstrapError(
            f"Cannot reach the cluster: none of bootstrap.servers {servers} answers, because: "
            + " ".join(dict.fromkeys(failures))
            + " Check that a broker runs there, and that the address is one this machine can reach."
        )

    def _is_doubted(self, node: Destination) -> bool:
        return self._doubted is not None and self._doubted == (node.host, node.port)

    def _has_stalled(self, node: Destination) -> bool:
        connection = self._pool.current(node)
        return connection is not None and connection.stalled_since is not None

    def _on_stalled(self, connection: OutgoingConnection) -> None:
        """Look for the successors of a broker that does not answer, for example because it is paused: for the new
        leaders of its partitions, and the new coordinators of its groups and transactions."""
        if self._closed or self._leave(connection) or self._search is not None:
            return
        broker_id = connection.to.broker_id
        topics = [] if connection.to.purpose else self.metadata.led_by(broker_id)[:TOPICS_PER_REQUEST_MAX]
        if topics or self.coordinators.may_have_moved_from(broker_id):
            self._search = asyncio.get_running_loop().create_task(
                self._find_successors(connection, topics), name=f"find the successors of broker {broker_id}"
            )
            self._search.add_done_callback(self._on_searched)

    async def _find_successors(self, connection: OutgoingConnection, topics: list[str]) -> None:
        with contextlib.suppress(KafkaError):
            if topics:
                await self.refresh(topics, quiet=True)
                self._leave(connection)
        with contextlib.suppress(KafkaError):
            await self.coordinators.look_again(connection.to.broker_id)
            self._leave(connection)

    def _on_searched(self, search: asyncio.Task[None]) -> None:
        self._search = None

    def _leave(self, connection: OutgoingConnection) -> bool:
        """Close a connection whose oldest request has no response, if the broker has lost the leadership of a partition
        or the coordination of a group or transaction since. The requests fail with an error that is retried, and are
        repeated at the successor. (An answer to any of them would come after one of the oldest.)

        A connection with a purpose is that of a group: a join may wait for long, so that a leadership does not matter.
        """
        since, broker_id = connection.stalled_since, connection.to.broker_id
        lost_at = self.coordinators.moved_at.get(broker_id, float("-inf"))
        if not connection.to.purpose:
            lost_at = max(lost_at, self.metadata.leadership_lost_at.get(broker_id, float("-inf")))
        if since is None or lost_at < since:
            return False
        connection.abort(
            f"{connection.peer} has not answered for {self.now() - since:.1f} s, and other brokers have taken over from"
            " it. The connection was closed by this side."
        )
        return True

    def _candidates(self) -> list[Destination]:
        known = [_destination(broker) for broker in self.metadata.brokers.values()]
        self.rng.shuffle(known)
        if known and not self.options.rebootstrap:
            return known
        seeds = [Destination(host, port) for host, port in self.options.bootstrap_servers]
        return known + seeds

    # -- metadata --------------------------------------------------------------------------------------------------

    async def refresh(
        self,
        topics: Iterable[str] | None = (),
        *,
        deadline: float | None = None,
        allow_auto_create: bool = False,
        quiet: bool = False,
    ) -> None:
        """Request metadata now: of `topics`, of all topics (None), or of the brokers only (empty).

        Failed attempts are noted in `problems`, unless `quiet` is true.
        """
        names = None if topics is None else list(topics)
        if deadline is None:
            deadline = self.deadline()
        asked_at = self.now()
        async with self._metadata_lock:
            if names == [] and self._metadata_at > asked_at:
                return  # a refresh that began after this call has already brought the brokers
            began = self.now()
            request = MetadataRequest(
                topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
                allow_auto_topic_creation=allow_auto_create,
            )
            attempt = 0
            while True:
                try:
                    response: MetadataResponse = await self._ask_in_turn(request, deadline)
                    break
                except KafkaError as error:
                    if not error.retriable or self.now() >= deadline:
                        raise
                    if not quiet:
                        self.problems.note(CLUSTER, error, self.now())
                    await self.backoff(attempt, deadline)
                    if self.now() >= deadline:
                        raise
                    attempt += 1
            self.problems.solved(CLUSTER)
            self._doubted = None
            self.metadata.apply(response, now=self.now(), all_topics=names is None)
            self._metadata_at = began

    async def topics(
        self, names: Iterable[str], *, deadline: float | None = None, allow_auto_create: bool = False
    ) -> dict[str, TopicDescription]:
        """The metadata of several topics, from the cache if it is fresh. A topic's error is in its description."""
        wanted = sorted(set(names))  # a set has no fixed order; requests should have one
        oldest = self.now() - self.options.metadata_max_age_ms / 1000.0
        missing = [name for name in wanted if not self._is_fresh(name, oldest)]
        for start in range(0, len(missing), TOPICS_PER_REQUEST_MAX):
            part = missing[start : start + TOPICS_PER_REQUEST_MAX]
            await self.refresh(part, deadline=deadline, allow_auto_create=allow_auto_create)
        nothing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return {name: self.metadata.topics.get(name) or TopicDescription(name, error=nothing) for name in wanted}

    async def topic(
        self, name: str, *, deadline: float | None = None, allow_auto_create: bool = False
    ) -> TopicDescription:
        """The metadata of one topic. Retriable errors (an election, a creation) are retried until the deadline.

        Raises KafkaError with the error code of the topic if the error remains.
        """
        if deadline is None:
            deadline = self.deadline()
        attempt = 0
        last: KafkaError | None = None
        while True:
            try:
                views = await self.topics([name], deadline=deadline, allow_auto_create=allow_auto_create)
            except (RequestTimeoutError, BootstrapError) as error:
                if last is not None:
                    raise last from error  # the last error of the topic says more than the time-out
                raise
            view = views[name]
            if view.error is ErrorCode.NONE and view.partitions:
                self.problems.solved(f"topic {name!r}")
                return view
            self.metadata.mark_stale([name])
            gone = view.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not allow_auto_create and attempt >= 3
            if gone or not (view.error.retriable or view.error is ErrorCode.NONE) or self.now() >= deadline:
                self.problems.forget(f"topic {name!r}")
                raise topic_error(view)
            last = topic_error(view)
            self.problems.note(f"topic {name!r}", last, self.now())
            await self.backoff(attempt, deadline)
            attempt += 1

    async def all_topics(self, *, deadline: float | None = None) -> dict[str, TopicDescription]:
        """Every topic of the cluster that this client is authorized to describe."""
        await self.refresh(None, deadline=deadline)
        return dict(self.metadata.topics)

    async def leader(self, partition: TopicPartition, *, deadline: float | None = None) -> TopicPartitionInfo:
        """The metadata of a partition that has a leader among the known brokers.

        If there is no such leader yet, the metadata is refreshed until the deadline. Raises KafkaError.
        """
        if deadline is None:
            deadline = self.deadline()
        attempt = 0
        while True:
            view = await self.topic(partition.topic, deadline=deadline)
            if not 0 <= partition.partition < len(view.partitions):
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"There is no partition {partition}: the topic has {len(view.partitions)} partitions.",
                )
            found = view.partitions[partition.partition]
            if found.leader in self.metadata.brokers:
                return found
            if self.now() >= deadline:
                raise KafkaError(
                    ErrorCode.LEADER_NOT_AVAILABLE,
                    f"{partition} has no leader: no eligible replica of {list(found.replicas)} is up."
                    " Start those brokers, or elect a leader.",
                )
            self.metadata.mark_stale([partition.topic])
            await self.backoff(attempt, deadline)
            attempt += 1

    def note_error(self, partition: TopicPartition, code: ErrorCode) -> None:
        """Handle the error of a partition in a response: if it means outdated metadata, mark the topic as stale."""
        if not code.refresh_metadata:
            return
        self.metadata.mark_stale([partition.topic])
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            view = self.metadata.partition(partition.topic, partition.partition)
            broker = None if view is None else self.metadata.brokers.get(view.leader)
            self._doubted = None if broker is None else (broker.host, broker.port)

    def _is_fresh(self, name: str, oldest: float) -> bool:
        view = self.metadata.topics.get(name)
        return view is not None and view.updated_at >= oldest and not view.error.retriable

    # -- retries ---------------------------------------------------------------------------------------------------

    async def retrying(self, what: str, attempt: Callable[[], Any], *, deadline: float) -> Any:
        """`await attempt()` until it succeeds, fails for good, or the deadline passes (RequestTimeoutError)."""
        tries = 0
        began = self.now()
        while True:
            try:
                result = await attempt()
                self.problems.solved(what)
                return result
            except KafkaError as error:
                if error.retriable:
                    self.problems.note(what, error, self.now())
                    await self.backoff(tries, deadline)
                    tries += 1
                    if self.now() < deadline:
                        continue
                self.problems.forget(what)
                if not error.retriable:
                    raise
                raise RequestTimeoutError(
                    f"{what} did not succeed within {self.now() - began:.1f} s; after {tries} attempts the last error"
                    f" was: {error}"
                ) from error


def _destination(broker: BrokerAddress, purpose: str = "") -> Destination:
    return Destination(broker.host, broker.port, purpose, broker.broker_id)


def topic_error(view: TopicDescription) -> KafkaError:
    """The error of a topic that cannot be used, with the advice for it."""
    match view.error:
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            text = f"There is no topic {view.name!r}. Create it, or check the spelling."
        case ErrorCode.NONE:
            text = f"Topic {view.name!r} has no partitions yet; it is still being created."
        case code:
            text = f"Topic {view.name!r}: {code.message}"
    return KafkaError(view.error, text)
