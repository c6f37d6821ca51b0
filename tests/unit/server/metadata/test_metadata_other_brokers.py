"""Brokers of Apache Kafka at our controller: cordoned log directories, and feature levels that they do not support."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
)
from barnabas.server.metadata.features import bootstrap_records, unsupported_levels
from barnabas.server.metadata.image.nodes import FeatureRange
from tests.unit.server.metadata.controller_house import House, play

DIRECTORY = UUID(int=1005)


def test_the_directories_that_a_broker_cordons_are_those_of_its_newest_heartbeat() -> None:
    """Apache Kafka 4.3 sends cordoned.log.dirs with each heartbeat; earlier brokers, and ours, send None."""

    async def run(house: House) -> None:
        house.log.elect(1)
        await house.brokers(5)

        async def beat(cordoned: list[UUID] | None) -> tuple[UUID, ...] | None:
            request = BrokerHeartbeatRequest(
                broker_id=5,
                broker_epoch=house.epochs[5],
                current_metadata_offset=house.image.offset,
                cordoned_log_dirs=cordoned,
            )
            await house.service.call(request, 2)
            broker = house.image.brokers.get(5)
            assert broker is not None
            return broker.cordoned_log_dirs

        assert await beat(None) is None
        assert await beat([DIRECTORY]) == (DIRECTORY,)
        before = house.image.offset
        assert await beat([DIRECTORY]) == (DIRECTORY,)
        assert await beat(None) == (DIRECTORY,)
        assert house.image.offset == before, "nothing changed"
        assert await beat([]) == ()

    play(run)


def test_the_log_names_the_levels_that_keep_a_broker_out(caplog: pytest.LogCaptureFixture) -> None:
    async def run(house: House) -> None:
        house.log.elect(1)
        request = BrokerRegistrationRequest(
            broker_id=7,
            cluster_id="c",
            features=[Feature(name="metadata.version", min_supported_version=1, max_supported_version=21)],
        )
        response = await house.service.call(request, 4)
        assert isinstance(response, BrokerRegistrationResponse)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION

    with caplog.at_level(logging.WARNING):
        play(run)
    (fields,) = [vars(record)["fields"] for record in caplog.records if "may not join" in record.message]
    assert fields["broker"] == 7
    levels = fields["levels"].split("; ")
    assert "metadata.version 4.3-IV0, of which the node supports 1 to 3.9-IV0" in levels
    assert "group.version 1, which the node does not know" in levels


def test_levels_that_a_node_supports_are_not_listed() -> None:
    levels = {record.name: record.feature_level for record in bootstrap_records()}
    ranges = {name: FeatureRange(0, level) for name, level in levels.items()}
    assert unsupported_levels(levels, ranges) == []
    low = {**ranges, "transaction.version": FeatureRange(0, 1)}
    assert unsupported_levels(levels, low) == ["transaction.version 2, of which the node supports 0 to 1"]
