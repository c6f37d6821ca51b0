"""With `share.version` or `group.version` at 0 their APIs are rejected; at 1 they work again with the old state."""

from __future__ import annotations

from uuid import uuid4

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages import describe_share_group_offsets as offsets
from barnabas.protocol.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from barnabas.protocol.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from barnabas.protocol.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from barnabas.protocol.wire.messages.share_fetch import ShareFetchRequest
from barnabas.protocol.wire.messages.share_group_describe import ShareGroupDescribeRequest
from barnabas.protocol.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.wire.schema import Request
from barnabas.testing import EmbeddedBroker
from tests.system.broker.wire_client import WireClient

SAFE_DOWNGRADE, UPGRADE = 2, 1
MEMBER = str(uuid4())
SHARE: list[tuple[Request, int]] = [
    (ShareGroupHeartbeatRequest(group_id="g", member_id=MEMBER, subscribed_topic_names=["t"]), 1),
    (ShareFetchRequest(group_id="g", member_id=MEMBER), 2),
    (ShareAcknowledgeRequest(group_id="g", member_id=MEMBER), 2),
    (AlterShareGroupOffsetsRequest(group_id="g"), 0),
    (DeleteShareGroupOffsetsRequest(group_id="g"), 0),
    (ShareGroupDescribeRequest(group_ids=["g"]), 1),
    (
        offsets.DescribeShareGroupOffsetsRequest(
            groups=[offsets.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)]
        ),
        1,
    ),
]
CONSUMER: list[tuple[Request, int]] = [
    (
        ConsumerGroupHeartbeatRequest(
            group_id="c", member_id=MEMBER, rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=[]
        ),
        1,
    ),
    (ConsumerGroupDescribeRequest(group_ids=["c"]), 1),
]


def set_level(client: WireClient, feature: str, level: int) -> None:
    update = FeatureUpdateKey(
        feature=feature, max_version_level=level, upgrade_type=UPGRADE if level else SAFE_DOWNGRADE
    )
    response = client.call(UpdateFeaturesRequest(feature_updates=[update]), 2)
    assert response.error_code == ErrorCode.NONE, response.error_message


def refused(client: WireClient, requests: list[tuple[Request, int]]) -> list[str]:
    """The APIs whose response is UNSUPPORTED_VERSION."""
    names = []
    for request, version in requests:
        response = client.call(request, version)
        codes = [g.error_code for g in response.groups] if hasattr(response, "groups") else [response.error_code]
        if codes == [ErrorCode.UNSUPPORTED_VERSION]:
            names.append(type(request).__name__)
    return names


def test_apis_of_a_disabled_feature_are_rejected(broker: EmbeddedBroker, client: WireClient) -> None:
    for feature, mine, others in (("share.version", SHARE, CONSUMER), ("group.version", CONSUMER, SHARE)):
        assert refused(client, mine) == []
        set_level(client, feature, 0)
        assert refused(client, mine) == [type(request).__name__ for request, _ in mine]
        assert refused(client, others) == []
        set_level(client, feature, 1)
        assert refused(client, mine) == []
