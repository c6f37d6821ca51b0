"""Client quotas of a broker: what is accounted for, what clients are answered, and how long they are delayed."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.protocol.security.quotas.limits import QuotaEntity, QuotaKind, QuotaLimits
from barnabas.protocol.security.quotas.rates import QuotaWindows
from barnabas.protocol.transport.ports import Peer
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.wire.messages.produce import ProduceRequest, ProduceResponse
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.client_quotas import ClientQuotas
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.image.persistent import PersistentMap
from barnabas.server.metadata.image.small import QuotasImage

NOW_S = 50.0
SESSION = 9


class Clock:
    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic(self) -> float:
        return NOW_S


def quotas_of(limits: Mapping[QuotaEntity, Mapping[str, float]]) -> ClientQuotas:
    quotas = ClientQuotas(QuotaLimits(), QuotaWindows(), Clock(), lambda: NOW_S)
    image = ClusterImage(quotas=QuotasImage(PersistentMap.of(limits)))
    quotas.on_image(ClusterDelta.between(ClusterImage(), image), image)
    return quotas


def context(key: ApiKey, client_id: str = "c", **fields: object) -> RequestContext:
    peer = Peer(1, "PLAINTEXT", "PLAINTEXT", "127.0.0.1", 5, KafkaPrincipal("User", "a"))
    ctx = RequestContext(key, 12, 1, client_id, peer, Clock().now_ms(), NOW_S)
    for name, value in fields.items():
        setattr(ctx, name, value)
    return ctx


def apply(
    quotas: ClientQuotas, ctx: RequestContext, request: Message, size: int, response: Message | None
) -> Message | None:
    return quotas.apply(ctx, request, size, response, lambda message: size)


BY_USER = (("user", "a"),)


def test_without_quotas_nothing_is_measured() -> None:
    quotas = quotas_of({})
    assert not quotas.is_active
    assert quotas.limit_fetch_bytes(context(ApiKey.FETCH), 50) == 50
    assert not quotas_of({(("ip", None),): {"connection_creation_rate": 1.0}}).is_active


def test_a_producer_above_its_quota_is_delayed_after_the_response() -> None:
    quotas = quotas_of({BY_USER: {"producer_byte_rate": 1000.0}})
    ctx = context(ApiKey.PRODUCE)
    first = apply(quotas, ctx, ProduceRequest(), 10_000, ProduceResponse())
    assert isinstance(first, ProduceResponse) and first.throttle_time_ms == 0
    assert ctx.client.muted_until == 0
    second = apply(quotas, ctx, ProduceRequest(), 2_000, ProduceResponse())
    assert isinstance(second, ProduceResponse) and second.throttle_time_ms == 2_000
    assert ctx.client.muted_until == NOW_S + 2
    assert quotas.throttled[QuotaKind.PRODUCE] == 1


def test_a_producer_without_acknowledgements_is_delayed_too() -> None:
    quotas = quotas_of({BY_USER: {"producer_byte_rate": 1000.0, "request_percentage": 0.001}})
    ctx = context(ApiKey.PRODUCE, held_s=10.0)
    assert apply(quotas, ctx, ProduceRequest(), 11_000, None) is None
    assert ctx.client.muted_until == NOW_S + 1, "only its bytes count"


def fetched() -> FetchResponse:
    answer = PartitionData(partition_index=0, records=memoryview(b"records"))
    return FetchResponse(session_id=SESSION, responses=[FetchableTopicResponse(topic="t", partitions=[answer])])


def test_a_fetch_above_the_quota_is_answered_without_records_and_not_counted() -> None:
    quotas = quotas_of({BY_USER: {"consumer_byte_rate": 1000.0}})
    replaced: list[str] = []
    ctx = context(ApiKey.FETCH, on_replaced=lambda: replaced.append("replaced"))
    assert quotas.limit_fetch_bytes(ctx, 50_000) == 10_000
    for session_epoch, session in ((5, SESSION), (0, 0), (-1, 0)):
        response = apply(quotas, ctx, FetchRequest(session_epoch=session_epoch), 11_000, fetched())
        assert isinstance(response, FetchResponse)
        assert (response.session_id, response.responses, response.throttle_time_ms) == (session, [], 1_000)
    assert len(replaced) == 3
    complete = apply(quotas, ctx, FetchRequest(), 10_000, fetched())
    assert len(replaced) == 3
    assert isinstance(complete, FetchResponse) and complete.responses and complete.throttle_time_ms == 0


def test_followers_and_other_brokers_have_no_quota() -> None:
    quotas = quotas_of({BY_USER: {"consumer_byte_rate": 1.0, "request_percentage": 0.001}})
    ctx = context(ApiKey.FETCH, is_exempt=True, held_s=1.0)
    response = apply(quotas, ctx, FetchRequest(), 1_000_000, fetched())
    assert isinstance(response, FetchResponse) and response.responses
    markers = context(ApiKey.WRITE_TXN_MARKERS, held_s=1.0)
    apply(quotas, markers, MetadataRequest(), 1_000_000, MetadataResponse())
    assert ctx.client.muted_until == markers.client.muted_until == 0


def test_the_time_of_requests_is_limited_and_the_delay_is_at_most_a_window() -> None:
    quotas = quotas_of({BY_USER: {"request_percentage": 1.0}})
    ctx = context(ApiKey.METADATA, held_s=0.05)  # 5 percent-seconds, where 10 are allowed
    first = apply(quotas, ctx, MetadataRequest(), 10, MetadataResponse())
    assert isinstance(first, MetadataResponse) and first.throttle_time_ms == 0
    ctx.held_s = 60.0
    second = apply(quotas, ctx, MetadataRequest(), 10, MetadataResponse())
    assert isinstance(second, MetadataResponse) and second.throttle_time_ms == 1_000


def test_the_delay_that_the_controller_asks_for_holds_on_the_connection_of_the_client() -> None:
    quotas = quotas_of({BY_USER: {"controller_mutation_rate": 1.0}})
    ctx = context(ApiKey.CREATE_TOPICS)
    response = apply(quotas, ctx, CreateTopicsRequest(), 10, CreateTopicsResponse(throttle_time_ms=700))
    assert isinstance(response, CreateTopicsResponse) and response.throttle_time_ms == 700
    assert ctx.client.muted_until == NOW_S + 0.7


def test_a_removed_quota_holds_no_longer() -> None:
    quotas = quotas_of({BY_USER: {"producer_byte_rate": 1.0}})
    before, after = (
        ClusterImage(quotas=QuotasImage(PersistentMap.of({BY_USER: {"producer_byte_rate": 1.0}}))),
        ClusterImage(),
    )
    quotas.on_image(ClusterDelta.between(before, after), after)
    assert not quotas.is_active
