"""Machine: decides on the requests of clients that push metrics (KIP-714).

    GetTelemetrySubscriptions ──► what to push, and the id of that answer
    PushTelemetry ──────────────► accepted, or an error by which the client asks again or pushes later

A client that asks or pushes before its interval is over gets THROTTLING_QUOTA_EXCEEDED. A push for an old subscription,
or of a client that no subscription matches, gets UNKNOWN_SUBSCRIPTION_ID. The push with `terminating` is the client's
last one and may come early. Instances of clients are forgotten, those first that were silent for the longest time, when
there are too many of them. A new instance of a principal or an address with too many replaces one of the same owner,
and only one whose interval is over: otherwise it gets THROTTLING_QUOTA_EXCEEDED, so that invented ids do not avoid the
interval.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.rng import Rng, random_uuid
from barnabas.protocol.records.compression import CompressionType
from barnabas.server.broker.client_metrics.shares import Bounds, ClientShares
from barnabas.server.broker.client_metrics.subscriptions import ClientAttributes, Subscription, WantedMetrics, wanted_of

INSTANCES: Final = Bounds(total=16_384, of_principal=8_192, of_address=1_024)
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
    wanted: WantedMetrics
    version: int
    """The version of the subscriptions from which `wanted` was computed."""
    asked_ms: int = _NEVER_MS
    pushed_ms: int = _NEVER_MS
    is_terminating: bool = False

    def is_silent(self, now_ms: int) -> bool:
        """Whether the client has not asked or pushed for its interval."""
        return now_ms - max(self.asked_ms, self.pushed_ms) >= self.wanted.interval_ms

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

    def __init__(self, rng: Rng, bounds: Bounds = INSTANCES) -> None:
        self._rng = rng
        self._shares = ClientShares(bounds)
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
        found = self._find(instance_id, attributes, now_ms)
        if not found.is_silent(now_ms):
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        found.asked_ms = now_ms
        return found

    def push(self, push: Push, attributes: ClientAttributes, now_ms: int, bytes_max: int) -> ClientInstance:
        """A client pushes metrics. Raises KafkaError if the push is not accepted."""
        if push.instance_id == ZERO:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A push needs the id that the broker has given to the client.")
        found = self._find(push.instance_id, attributes, now_ms)
        if found.is_terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The client has sent its last push already.")
        is_first = found.asked_ms > found.pushed_ms
        is_due = is_first or now_ms - found.pushed_ms >= found.wanted.interval_ms
        if is_due:
            found.pushed_ms = now_ms
        elif not push.is_terminating:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if push.subscription_id != found.subscription_id or not found.wanted.metrics:
            found.asked_ms = _NEVER_MS  # the client asks again at once
            found.pushed_ms = _NEVER_MS
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if push.codec not in (CompressionType.NONE, *ACCEPTED_CODECS):
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if push.size > bytes_max:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)
        found.is_terminating = push.is_terminating
        return found

    def _find(self, instance_id: UUID, attributes: ClientAttributes, now_ms: int) -> ClientInstance:
        """The instance, with what it is to push by the present subscriptions. Raises KafkaError if it is new, and its
        principal or address has too many."""
        found = self._forget(instance_id)
        if found is None or found.version != self._version:
            known = attributes_with(attributes, instance_id)
            wanted = wanted_of(self._subscriptions, known)
            if found is not None and wanted == found.wanted:
                found.version = self._version
            else:
                found = ClientInstance(instance_id, known, wanted, self._version)
        while self._shares.room_of_owner(found.attributes) <= 0:
            self._forget_one_of(found.attributes, now_ms)
        if self._shares.room(found.attributes) <= 0:
            self._forget(next(iter(self._by_id)))
        self._by_id[instance_id] = found
        self._shares.add(found.attributes, 1)
        return found

    def _forget_one_of(self, owner: ClientAttributes, now_ms: int) -> None:
        """Forget the instance of a principal or an address with too many that was silent for the longest time. Raises
        KafkaError if its interval is not over."""
        for instance_id, instance in self._by_id.items():
            if self._shares.gives_way(instance.attributes, owner):
                if not instance.is_silent(now_ms):
                    break
                self._forget(instance_id)
                return
        raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    def _forget(self, instance_id: UUID) -> ClientInstance | None:
        found = self._by_id.pop(instance_id, None)
        if found is not None:
            self._shares.add(found.attributes, -1)
        return found


def attributes_with(attributes: ClientAttributes, instance_id: UUID) -> ClientAttributes:
    """The attributes of a client whose instance id is known."""
    return replace(attributes, client_instance_id=str(instance_id))
