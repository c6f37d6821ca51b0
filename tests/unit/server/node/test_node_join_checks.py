"""A broker stays out of a cluster with streams groups or with topics in tiered storage."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.wire.schema import Request, Response
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import replayed
from barnabas.server.metadata.records.nodes import RegisterBrokerRecord
from barnabas.server.metadata.records.other import ConfigRecord, FeatureLevelRecord
from barnabas.server.node.lifecycle import RegistrationError
from barnabas.server.node.setup.join_checks import check_may_join

ME = 3


class Others:
    """The other brokers, by id, with their streams groups; None for a broker that does not answer."""

    def __init__(self, groups: Mapping[int, list[str] | None]) -> None:
        self.groups = groups
        self.asked: list[int] = []

    async def send(self, broker_id: int, request: Request, *, timeout_ms: int, purpose: str = "") -> Response:
        assert isinstance(request, ListGroupsRequest)
        assert request.types_filter == ["streams"]
        self.asked.append(broker_id)
        names = self.groups[broker_id]
        if names is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        return ListGroupsResponse(groups=[ListedGroup(group_id=name) for name in names])


def image(streams_version: int) -> ClusterImage:
    registrations = [RegisterBrokerRecord(broker_id=node_id, fenced=node_id == 9) for node_id in (1, 2, ME, 9)]
    level = FeatureLevelRecord(name="streams.version", feature_level=streams_version)
    return replayed(ClusterImage(cluster_id="c"), [level, *registrations])


def test_streams_groups_of_other_brokers_keep_a_broker_out() -> None:
    others = Others({1: ["orders"], 2: ["totals", "alerts"]})
    with pytest.raises(RegistrationError, match=r"groups of the streams protocol \(alerts, orders, totals\)"):
        asyncio.run(check_may_join(others, image(1), ME, has_store=True))
    assert sorted(others.asked) == [1, 2], "neither this broker nor the fenced one"


def test_a_cluster_without_streams_groups_admits_the_broker() -> None:
    others = Others({1: [], 2: None})
    asyncio.run(check_may_join(others, image(1), ME, has_store=True))
    assert sorted(others.asked) == [1, 2]


def test_without_the_feature_no_broker_is_asked() -> None:
    others = Others({1: ["orders"], 2: []})
    asyncio.run(check_may_join(others, image(0), ME, has_store=True))
    assert others.asked == []


def test_topics_in_tiered_storage_keep_a_broker_without_an_object_store_out() -> None:
    configs = [
        ConfigRecord(resource_type=2, resource_name="archive", name="remote.storage.enable", value="true"),
        ConfigRecord(resource_type=2, resource_name="plain", name="remote.storage.enable", value="false"),
    ]
    tiered = replayed(image(0), configs)
    for others in (Others({1: [], 2: None}), Others({1: None, 2: None})):
        with pytest.raises(RegistrationError, match=r"remote.storage.enable=true \(archive\)"):
            asyncio.run(check_may_join(others, tiered, ME, has_store=False))
        asyncio.run(check_may_join(others, tiered, ME, has_store=True))
