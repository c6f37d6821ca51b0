"""Shell: serves a run over Kafka's protocol, to the brokers that restore it.

The only user has a name and a password of this process; the brokers get both with the link. A response is filled from
partitions whose objects are loaded already, before others are loaded: brokers ask for all of their partitions at once.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from msgspec import Struct

from barnabas.backup.errors import BackupError
from barnabas.backup.serving.answers import SERVED, RunAnswers, ServerAddress
from barnabas.backup.serving.batches import RunBatches, readable_end
from barnabas.backup.store import BackupStore
from barnabas.backup.values import RunManifest
from barnabas.core.clock import SystemClock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.rng import system_rng
from barnabas.core.telemetry import Metrics
from barnabas.protocol.security.credentials import SCRAM_ITERATIONS_MIN, SCRAM_MECHANISMS, ScramCredential
from barnabas.protocol.security.sasl_conversation import SaslServerConfig
from barnabas.protocol.security.sasl_server import SaslCredentials
from barnabas.protocol.security.scram import HASHES, credential
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.limits import TransportConfig
from barnabas.protocol.transport.listener import Listener
from barnabas.protocol.transport.listener_security import ListenerSecurity
from barnabas.protocol.transport.ports import Answer, CloseConnectionError, Finished, Peer, RequestScheduling
from barnabas.protocol.wire.apis import API_KEYS, APIS, ApiKey
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.protocol.wire.server_conn import ReceivedRequest

_MECHANISM: Final = "SCRAM-SHA-256"
_REQUEST_BYTES_MAX: Final = 16 * 1024 * 1024
_LIMITS: Final = TransportConfig(
    socket_request_max_bytes=_REQUEST_BYTES_MAX,
    queued_max_requests=500,
    queued_max_request_bytes=-1,
    connections_max_idle_ms=600_000,
)


class Login(Struct, frozen=True):
    """The user of the server."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.user}, ...)"

    def client_settings(self) -> dict[str, str]:
        """The settings of a Kafka client that logs in."""
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": _MECHANISM,
            "sasl.jaas.config": f'{login} username="{self.user}" password="{self.password}";',
        }


def new_login() -> Login:
    return Login("restore", secrets.token_urlsafe(32))


class RunServer:
    """Handles the requests of brokers. Implements `RequestHandler`."""

    def __init__(
        self, run: RunManifest, address: ServerAddress, batches: RunBatches, on_sent: Callable[[int], None]
    ) -> None:
        """`on_sent` gets the bytes of records of each response."""
        self._answers = RunAnswers(run, address)
        self._batches = batches
        self._on_sent = on_sent
        self.failure: BackupError | KafkaError | None = None
        """Why the last object could not be read; None if it could."""

    def advertise(self, address: ServerAddress) -> None:
        """Brokers reach the server here."""
        self._answers.address = address

    def scheduling(self, request: ReceivedRequest) -> RequestScheduling:
        is_fetch = request.header.api_key == ApiKey.FETCH
        return RequestScheduling.CANCELLABLE if is_fetch else RequestScheduling.SEQUENTIAL

    def on_closed(self, peer: Peer) -> None:
        pass

    def begin(self, request: ReceivedRequest, peer: Peer) -> Finished[Answer] | Coroutine[Any, Any, Answer]:
        key = API_KEYS.get(request.header.api_key)
        versions = None if key is None else SERVED.get(key)
        if key is None or versions is None:
            raise CloseConnectionError(f"A backup does not serve requests with key {request.header.api_key}.")
        if not versions[0] <= request.version <= versions[1]:
            if key is not ApiKey.API_VERSIONS:
                raise CloseConnectionError(f"A backup does not serve {APIS[key].name} v{request.version}.")
            known = ApiVersion(api_key=key, min_version=versions[0], max_version=versions[1])
            refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known])
            return Finished(request.answer(refusal, version=0))
        try:
            message = request.decode()
        except WireError as error:
            raise CloseConnectionError(f"{APIS[key].name} v{request.version} cannot be decoded: {error}") from error
        if isinstance(message, FetchRequest):
            return self._fetch(request, message)
        return Finished(request.answer(self._answers.answer(message)))

    # -- Fetch ---------------------------------------------------------------------------------------------------

    async def _fetch(self, request: ReceivedRequest, message: FetchRequest) -> Answer:
        """The records of a full request: there are no fetch sessions. A request that reads nothing waits for
        `max_wait_ms`, because a backup gets no new records."""
        wanted = [
            (topic.topic or self._answers.names.get(topic.topic_id, ""), entry)
            for topic in message.topics
            for entry in topic.partitions
        ]
        answers = [self._bounds(name, entry) for name, entry in wanted]
        sent = await self._fill(wanted, answers, message.max_bytes)
        if not sent and not any(answer.error_code for answer in answers):
            await asyncio.sleep(message.max_wait_ms / 1000)
        self._on_sent(sent)
        responses: list[FetchableTopicResponse] = []
        found = iter(answers)
        for topic in message.topics:
            partitions = [next(found) for _ in topic.partitions]
            responses.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions))
        return request.answer(FetchResponse(session_id=0, responses=responses))

    def _bounds(self, topic: str, wanted: FetchPartition) -> PartitionData:
        found = self._answers.partition(topic, wanted.partition)
        if found is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return PartitionData(partition_index=wanted.partition, error_code=error, high_watermark=-1)
        end = readable_end(found)
        inside = found.log_start <= wanted.fetch_offset <= end
        return PartitionData(
            partition_index=wanted.partition,
            error_code=ErrorCode.NONE if inside else ErrorCode.OFFSET_OUT_OF_RANGE,
            high_watermark=end,
            last_stable_offset=end,
            log_start_offset=found.log_start,
            records=b"",
        )

    async def _fill(
        self, wanted: Sequence[tuple[str, FetchPartition]], answers: Sequence[PartitionData], bytes_max: int
    ) -> int:
        """Put records into the answers, up to about `bytes_max`. Returns the number of bytes."""
        due = []
        for (name, entry), answer in zip(wanted, answers, strict=True):
            partition = self._answers.partition(name, entry.partition)
            if not answer.error_code and partition is not None and entry.fetch_offset < answer.high_watermark:
                due.append((not self._batches.is_loaded(partition, entry.fetch_offset), partition, entry, answer))
        sent = 0
        for _, partition, entry, answer in sorted(due, key=lambda one: one[0]):
            if sent >= bytes_max:
                break
            try:
                room = min(entry.partition_max_bytes, max(bytes_max - sent, 1))
                records = await self._batches.read(partition, entry.fetch_offset, room)
            except (BackupError, KafkaError) as error:
                self.failure = error
                answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            answer.records = records
            sent += len(records)
        return sent


@asynccontextmanager
async def serving(
    run: RunManifest,
    store: BackupStore,
    listen: ServerAddress,
    advertised_host: str,
    login: Login,
    on_sent: Callable[[int], None],
) -> AsyncIterator[tuple[RunServer, ServerAddress]]:
    """Serve `run` at `listen` during the block. Yields the server, and the address for brokers. Raises OSError."""
    salt = secrets.token_bytes(16)
    known = credential(HASHES[_MECHANISM], login.password, salt, SCRAM_ITERATIONS_MIN)

    def scram_credential(mechanism: int, user: str) -> ScramCredential | None:
        return known if mechanism == SCRAM_MECHANISMS[_MECHANISM] and user == login.user else None

    sasl = SaslServerConfig((_MECHANISM,), SaslCredentials({}, scram_credential, secrets.token_bytes(32)), {})
    server = RunServer(run, listen, RunBatches(store), on_sent)
    endpoint = ListenerEndpoint("RESTORE", listen.host, listen.port, "SASL_PLAINTEXT")
    security = ListenerSecurity(SystemClock(), system_rng(), None, sasl)
    listener = Listener(endpoint, server, _LIMITS, Metrics(), security=security)
    bound = await listener.bind()
    address = ServerAddress(advertised_host, bound.port)
    server.advertise(address)
    accepting = asyncio.ensure_future(listener.serve())
    try:
        yield server, address
    finally:
        listener.stop()
        accepting.cancel()
        await asyncio.gather(accepting, return_exceptions=True)
