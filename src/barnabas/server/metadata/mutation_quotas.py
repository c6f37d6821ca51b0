"""Shell: the quota of each request that creates or deletes partitions (`controller_mutation_rate`, KIP-599).

Only the active controller accounts for partitions, so the quota of a client holds for the whole cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from msgspec import Struct

from barnabas.core.clock import Clock
from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.protocol.security.quotas.limits import ClientQuotaCallback, QuotaLimits
from barnabas.protocol.security.quotas.manager import MutationQuota, MutationQuotaManager
from barnabas.protocol.security.quotas.rates import QuotaWindows
from barnabas.protocol.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.protocol.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.wire.schema import Message
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.map_delta import MapDelta
from barnabas.server.metadata.quota_callback import CallbackLimits

_STRICT_SINCE: Final[Mapping[type[Message], int]] = {
    CreateTopicsRequest: 6,
    DeleteTopicsRequest: 5,
    CreatePartitionsRequest: 3,
}
"""Requests with a quota, and the first version whose clients understand THROTTLING_QUOTA_EXCEEDED. A client of an older
version gets what it wants, and is delayed afterwards."""


class RequestSource(Protocol):
    """The part of a request's context that the controller uses."""

    @property
    def connection_id(self) -> int:
        """The number of the connection over which the request came, unique on this node."""
        ...

    @property
    def principal(self) -> KafkaPrincipal: ...

    @property
    def client_id(self) -> str | None: ...


class OpenMutationQuota(Struct):
    """The quota of one request."""

    quota: MutationQuota
    clock: Clock

    def charge(self, partitions: int) -> bool:
        """Account for partitions. Returns False if the request must not create or delete them."""
        return self.quota.take(partitions, self.clock.now_ms())

    def set_throttle_time(self, response: Message) -> None:
        """Put the time for which the client must be delayed into the response."""
        assert isinstance(response, CreateTopicsResponse | DeleteTopicsResponse | CreatePartitionsResponse)
        response.throttle_time_ms = self.quota.throttle_ms(self.clock.now_ms())


class MutationQuotas:
    """The quotas of all clients of the active controller."""

    def __init__(self, windows: QuotaWindows, clock: Clock, limits: ClientQuotaCallback | None = None) -> None:
        self._clock = clock
        self._limits = limits or QuotaLimits()
        self._manager = MutationQuotaManager(self._limits, windows)
        self._applied = ClusterImage()

    def open(
        self, request: Message, version: int, source: RequestSource, image: ClusterImage
    ) -> OpenMutationQuota | None:
        """The quota of the request, by the limits in the image; None for a request that has none."""
        strict_since = _STRICT_SINCE.get(type(request))
        if strict_since is None:
            return None
        before, self._applied = self._applied, image
        if image.quotas is not before.quotas:
            self._limits.change(MapDelta.between(before.quotas.by_entity, image.quotas.by_entity).changed)
        if isinstance(self._limits, CallbackLimits) and image is not before:
            self._limits.on_image(image)
        quota = self._manager.open(source.principal, source.client_id or "", strict=version >= strict_since)
        return OpenMutationQuota(quota, self._clock)
