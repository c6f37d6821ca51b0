"""What clients use, over all brokers: a broker that does not answer is missing, and the others' rows are there."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.admin import clients
from barnabas.client.admin.clients import ClientUses, ClientView, describe_clients
from barnabas.client.errors import BrokerUnreachableError, RequestTimeoutError, UnsupportedApiError
from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.wire.messages.describe_clients import ClientRow, DescribeClientsResponse
from tests.unit.client.fake_cluster import DROP, SILENCE, FakeCluster


async def described(silent: dict[int, object], old: set[int]) -> ClientUses:
    """The rows of four brokers, of which some do not answer, and some have no such API."""
    fake = FakeCluster(brokers=4)

    def versions(broker_id: int, request: Any, version: int) -> ApiVersionsResponse | None:
        if broker_id not in old:
            return None
        found = fake._api_versions(ErrorCode.NONE)
        found.api_keys = [row for row in found.api_keys if row.api_key != ApiKey.DESCRIBE_CLIENTS]
        return found

    def answer(broker_id: int, request: Any, version: int) -> object:
        row = ClientRow(client_id=f"client-{broker_id}", requests=broker_id)
        return silent.get(broker_id) or DescribeClientsResponse(rows=[row])

    fake.scripts = {ApiKey.API_VERSIONS: versions, ApiKey.DESCRIBE_CLIENTS: answer}
    async with fake.cluster(request_timeout_ms=60_000) as cluster:
        return await describe_clients(cluster, ClientView.CLIENT_ID, deadline=cluster.deadline())


async def test_brokers_that_do_not_answer_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A paused broker used to hold the table for the whole deadline of the call, and then to fail it."""
    monkeypatch.setattr(clients, "BROKER_S", 0.2)
    found = await described({2: DROP, 3: SILENCE}, old={4})
    assert [use.client_id for use in found.clients] == ["client-1"]
    assert {broker_id: type(error) for broker_id, error in found.failed.items()} == {
        2: BrokerUnreachableError,
        3: RequestTimeoutError,
        4: UnsupportedApiError,
    }


async def test_no_broker_that_has_the_api_is_an_error() -> None:
    with pytest.raises(UnsupportedApiError):
        await described({}, old={1, 2, 3, 4})
