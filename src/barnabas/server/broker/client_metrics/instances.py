"""Machine: decides on the requests of clients that push metrics (KIP-714).

    GetTelemetrySubscriptions ──► what to push, and the id of that answer
    PushTelemetry ──────────────► accepted, or an error by which the client asks again or pushes later

A client that asks or pushes before its interval is over gets THROTTLING_QUOTA_EXCEEDED. A push for an old subscription
gets UNKNOWN_SUBSCRIPTION_ID. The push with `terminating` is the client's last one and may come early. Instances of
clients are forgotten, those first that were silent for the longest time, when there are too many of them.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.rng import Rng, random_uuid
from barnabas.protocol.records.compression import CompressionType
from barnabas.server.broker.client_metrics.subscriptions import ClientAttributes, Subscription, Wanted, wanted_of

INSTANCES_MAX: Final = 16_384
_NEVER_MS: Final = -(1 << 62)
ZERO: Final = UUID(int=0)
ACCEPTED_CODECS: Final = (
    CompressionType.ZSTD,
    CompressionType.LZ4,
    CompressionType.GZIP,
    CompressionType.SNAPPY,
)


class ClientInstance(Struct):
    """One instance of a client."""

    instance_id: UUID
    attributes: ClientAttributes
    wanted: Wanted
    version: int
    """The version of the subscriptions from which `wanted` was computed."""
    asked_ms: int = _NEVER_MS
    pushed_ms: int = _NEVER_MS
    is_terminating: bool = False

    @property
    def subscription_id(self) -> int:
        return self.wanted.subscription_id(self.instance_id)


class Push(Struct, frozen=True):
    """The fields of a PushTelemetry request that decide whether it is accepted."""

    instance_id: UUID
    subscription_id: int
    is_terminating: bool
    codec: int
    size: int


class ClientInstances:
    """The instances of the clients of one broker."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._subscriptions: tuple[Subscription, ...] = ()
        self._version = 0
        self._by_id: dict[UUID, ClientInstance] = {}  # the one that was silent for the longest time first

    def __len__(self) -> int:
        return len(self._by_id)

    def on_subscriptions(self, subscriptions: tuple[Subscription, ...]) -> None:
        """The subscriptions have changed: clients learn of it with their next request."""
        self._subscriptions = subscriptions
        self._version += 1

    def subscribe(self, instance_id: UUID, attributes: ClientAttributes, now_ms: int) -> ClientInstance:
        """A client asks what to push. Raises KafkaError THROTTLING_QUOTA_EXCEEDED if it asks too early."""
        if instance_id == ZERO:
            instance_id = random_uuid(self._rng)
        found = self._find(instance_id, attributes)
        if now_ms - max(found.asked_ms, found.pushed_ms) < found.wanted.interval_ms:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        found.asked_ms = now_ms
        return found

    def push(self, push: Push, attributes: ClientAttributes, now_ms: int, bytes_max: int) -> ClientInstance:
        """A client pushes metrics. Raises KafkaError if the push is not accepted."""
        if push.instance_id == ZERO:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A push needs the id that the broker has given to the client.")
        found = self._find(push.instance_id, attributes)
        if found.is_terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The client has sent its last push already.")
        is_first = found.asked_ms > found.pushed_ms
        is_due = is_first or now_ms - found.pushed_ms >= found.wanted.interval_ms
        if is_due:
            found.pushed_ms = now_ms
        elif not push.is_terminating:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if push.subscription_id != found.subscription_id:
            found.asked_ms = _NEVER_MS  # the client asks again at once
            found.pushed_ms = _NEVER_MS
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if push.codec not in (CompressionType.NONE, *ACCEPTED_CODECS):
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if push.size > bytes_max:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)
        found.is_terminating = push.is_terminating
        return found

    def _find(self, instance_id: UUID, attributes: ClientAttributes) -> ClientInstance:
        """The instance, with what it is to push by the present subscriptions."""
        found = self._by_id.pop(instance_id, None)
        if found is None or found.version != self._version:
            known = attributes_with(attributes, instance_id)
            wanted = wanted_of(self._subscriptions, known)
            if found is not None and wanted == found.wanted:
                found.version = self._version
            else:
                found = ClientInstance(instance_id, known, wanted, self._version)
        if len(self._by_id) >= INSTANCES_MAX:
            del self._by_id[next(iter(self._by_id))]
        self._by_id[instance_id] = found
        return found


def attributes_with(attributes: ClientAttributes, instance_id: UUID) -> ClientAttributes:
    """The attributes of a client whose instance id is known."""
    return replace(attributes, client_instance_id=str(instance_id))
