"""kraft.version is the quorum's; UpdateFeatures has it written, with the levels that are metadata or not at all."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas.server.metadata.features import bootstrap_records
from barnabas.server.metadata.records.other import NoOpRecord
from tests.unit.server.metadata.controller_house import House, play


@dataclass
class Quorum:
    kraft_version: int = 0
    reason: str = ""

    def upgrade_kraft_version(self) -> None:
        if self.reason:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, self.reason)
        self.kraft_version = 1


async def update(
    house: House, *levels: tuple[str, int], upgrade_type: int = 1, validate_only: bool = False
) -> tuple[int, str | None]:
    updates = [FeatureUpdateKey(feature=name, max_version_level=n, upgrade_type=upgrade_type) for name, n in levels]
    request = UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)
    answer = await house.service.call(request, 2)
    assert isinstance(answer, UpdateFeaturesResponse)
    return answer.error_code, answer.error_message


REFUSED = "Invalid update version {} for feature kraft.version. {}"


def test_the_quorum_is_upgraded_once_and_never_downgraded() -> None:
    quorum = Quorum()

    async def scenario(house: House) -> None:
        house.log.elect(1)
        assert await update(house, ("kraft.version", 1), validate_only=True) == (0, "")
        assert quorum.kraft_version == 0
        assert await update(house, ("kraft.version", 1), ("streams.version", 1)) == (0, "")
        assert (quorum.kraft_version, house.image.features.level("streams.version")) == (1, 1)
        assert house.image.features.level("kraft.version") == 0, "it is no record of the metadata"
        assert await update(house, ("kraft.version", 1)) == (0, "")
        for upgrade_type in (1, 2, 3):
            code, message = await update(house, ("kraft.version", 0), upgrade_type=upgrade_type)
            assert code == ErrorCode.INVALID_UPDATE_VERSION
            assert message is not None
            assert message.startswith(REFUSED.format(0, "Can't downgrade the version of this feature"))

    play(scenario, House(quorum))


@pytest.mark.parametrize(
    ("level", "others", "reason"),
    [
        (1, [], "voters [3] have not told their directory."),
        (1, [("streams.version", 9)], ""),
        (2, [], ""),
    ],
)
def test_what_is_refused_changes_nothing(level: int, others: list[tuple[str, int]], reason: str) -> None:
    quorum = Quorum(reason=reason)

    async def scenario(house: House) -> None:
        house.log.elect(1)
        code, message = await update(house, ("kraft.version", level), ("streams.version", 1), *others[:1])
        assert code != 0
        assert reason in (message or "")
        assert (quorum.kraft_version, house.image.features.level("streams.version")) == (0, 0)

    play(scenario, House(quorum))


def test_without_a_quorum_there_is_nothing_to_upgrade() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        assert await update(house, ("kraft.version", 1)) == (
            ErrorCode.INVALID_UPDATE_VERSION,
            REFUSED.format(1, "It belongs to a quorum of controllers, and this cluster has none."),
        )

    play(scenario)


def test_a_new_quorum_begins_with_its_feature_levels() -> None:
    """A node of Apache Kafka that sees metadata without metadata.version ends."""

    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(1)
        house.log.elect(2)
        house.log.elect(1)
        await house.beat(1)
        first, *later = house.log.batches
        assert list(first[: len(bootstrap_records())]) == bootstrap_records()
        assert (NoOpRecord(),) in later

    play(scenario, House(Quorum()))
