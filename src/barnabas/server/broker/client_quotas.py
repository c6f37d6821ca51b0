"""Shell: applies client quotas to the requests of a broker (KIP-13, KIP-55, KIP-124, KIP-219).

A client that exceeds a quota gets its response at once, with `throttle_time_ms`; after that its connection is not read
for this time. A Fetch response that exceeds the quota is replaced by an empty one. Nothing is measured unless a quota
is set.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from barnabas.core.clock import Clock
from barnabas.core.telemetry import Metrics
from barnabas.protocol.security.quotas.limits import ClientQuotaCallback, QuotaKind
from barnabas.protocol.security.quotas.manager import ClientQuotaManager
from barnabas.protocol.security.quotas.rates import QuotaWindows
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.quota_callback import CallbackLimits

_BETWEEN_NODES: Final = frozenset(
    {
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    }
)
"""APIs that only brokers use."""


class ClientQuotas:
    """The quotas of all clients of one broker. Also a subscriber of images."""

    def __init__(
        self, callback: ClientQuotaCallback, windows: QuotaWindows, clock: Clock, loop_time: Callable[[], float]
    ) -> None:
        self.is_active = False
        """Whether any client may have a quota."""
        self._callback = callback
        self._clock = clock
        self._loop_time = loop_time
        self._produce = ClientQuotaManager(QuotaKind.PRODUCE, callback, windows)
        self._fetch = ClientQuotaManager(QuotaKind.FETCH, callback, windows)
        self._request = ClientQuotaManager(QuotaKind.REQUEST, callback, windows, throttle_ms_max=windows.size_ms)
        self.throttled: dict[QuotaKind, int] = dict.fromkeys(QuotaKind, 0)
        """The number of requests that were delayed by each kind of quota."""

    def add_metrics(self, metrics: Metrics) -> None:
        for kind in QuotaKind:
            metrics.gauge(
                "barnabas_quota_throttled_requests",
                "Requests whose clients were delayed by a quota since the node started.",
                partial(self.throttled.__getitem__, kind),
                quota=kind.value,
            )

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        callback = self._callback
        if delta.quotas:
            callback.change(delta.quotas.changed)
        if isinstance(callback, CallbackLimits) and (delta.topics or delta.brokers):
            callback.on_image(image)
        self.is_active = any(callback.is_active(kind) for kind in QuotaKind)

    def limit_fetch_bytes(self, ctx: RequestContext, max_bytes: int) -> int:
        """The most bytes that a Fetch response of this client can have without exceeding its quota, at most
        `max_bytes`."""
        limit = self._fetch.most_at_once(ctx.principal, ctx.client_id or "")
        return max_bytes if limit is None else min(max_bytes, int(limit))

    def apply(
        self,
        ctx: RequestContext,
        request: Message,
        request_bytes: int,
        response: Message | None,
        response_bytes: Callable[[Message], int],
    ) -> Message | None:
        """Account for a request that was handled, and delay its client if it must wait. Returns the response to send.

        Call this only if `is_active`, with `ctx.held_s` set.
        """
        now_ms = self._clock.now_ms()
        name = ctx.client_id or ""
        key = ctx.api_key
        delays: list[tuple[int, QuotaKind]] = []
        fetched = 0
        if not ctx.is_exempt and key not in _BETWEEN_NODES:
            if key == ApiKey.PRODUCE:
                delays.append((self._produce.record(ctx.principal, name, request_bytes, now_ms), QuotaKind.PRODUCE))
            elif response is not None and key in (ApiKey.FETCH, ApiKey.SHARE_FETCH):
                fetched = response_bytes(response)
                delays.append((self._fetch.record(ctx.principal, name, fetched, now_ms), QuotaKind.FETCH))
            if response is not None:  # a Produce request with acks=0 is limited by its bytes only
                used = 100.0 * ctx.held_s
                delays.append((self._request.record(ctx.principal, name, used, now_ms), QuotaKind.REQUEST))
        by_controller = getattr(response, "throttle_time_ms", 0)  # of a request that was forwarded
        delays.append((by_controller, QuotaKind.CONTROLLER_MUTATION))
        delay_ms, kind = max(delays, key=lambda delay: delay[0])
        if not delay_ms:
            return response
        self.throttled[kind] += 1
        ctx.throttle_ms = delay_ms
        ctx.client.muted_until = max(ctx.client.muted_until, self._loop_time() + delay_ms / 1000)
        if isinstance(response, FetchResponse):
            assert isinstance(request, FetchRequest)
            self._fetch.take_back(ctx.principal, name, fetched, now_ms)
            if ctx.on_replaced is not None:
                ctx.on_replaced()
            response = _without_records(request, response)
        if response is not None and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = delay_ms
        return response


def _without_records(request: FetchRequest, response: FetchResponse) -> FetchResponse:
    """The response to a Fetch request that exceeds its quota. The client keeps its session, if it has one already."""
    if response.error_code:
        return response
    return FetchResponse(session_id=response.session_id if request.session_epoch > 0 else 0)
