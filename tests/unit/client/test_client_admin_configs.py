"""Who is asked to change the settings of a broker."""

from __future__ import annotations

from typing import Any

from barnabas.client.admin import configs
from barnabas.client.values import ConfigChange, ConfigResource
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages import incremental_alter_configs as wire
from tests.unit.client.fake_cluster import FakeCluster


async def test_the_settings_of_a_broker_that_is_down_are_changed_through_another() -> None:
    fake = FakeCluster(brokers=3)

    def take(broker_id: int, request: Any, version: int) -> wire.IncrementalAlterConfigsResponse:
        rows = [
            wire.AlterConfigsResourceResponse(resource_type=r.resource_type, resource_name=r.resource_name)
            for r in request.resources
        ]
        return wire.IncrementalAlterConfigsResponse(responses=rows)

    fake.scripts[ApiKey.INCREMENTAL_ALTER_CONFIGS] = take
    change = [ConfigChange("leader.replication.throttled.rate", "7")]
    resources = [ConfigResource.broker(2), ConfigResource.broker(3)]
    async with fake.cluster() as cluster:
        await cluster.refresh()
        fake.down.add(3)  # the client still thinks that it is there
        results = await configs.incremental_alter_configs(
            cluster, dict.fromkeys(resources, change), validate_only=False, deadline=cluster.deadline(2_000)
        )
    assert results == dict.fromkeys(resources)
    asked = [
        (broker_id, request.resources[0].resource_name)
        for broker_id, key, request in fake.requests
        if key is ApiKey.INCREMENTAL_ALTER_CONFIGS
    ]
    assert sorted(name for _, name in asked) == ["2", "3"]
    assert {broker_id for broker_id, name in asked if name == "2"} == {2}
    assert 3 not in {broker_id for broker_id, _ in asked}
