"""A controller registers with the active one, which is a real one. Time is virtual."""

from __future__ import annotations

import asyncio
import itertools
import random
from uuid import UUID

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from barnabas.protocol.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas.protocol.wire.schema import Message
from barnabas.server.metadata.features import SUPPORTED_FEATURES
from barnabas.server.metadata.image.nodes import AdvertisedEndpoint, ControllerImage, FeatureRange
from barnabas.server.metadata.records.nodes import ControllerFeature, RegisterControllerRecord
from barnabas.server.metadata.records.other import FeatureLevelRecord
from barnabas.server.node.controller_registration import ControllerRegistration
from tests.unit.server.metadata.controller_house import House, play

PLACE = ListenerEndpoint("CONTROLLER", "host2", 9093, "SASL_SSL")


class Channel:
    """To the house's controller, while there is one."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.seen: list[tuple[float, UUID]] = []

    async def call(self, request: Message, version: int, ctx: object = None) -> Message:
        assert isinstance(request, ControllerRegistrationRequest)
        self.seen.append((asyncio.get_running_loop().time(), request.incarnation_id))
        return await self.house.service.call(request, version)


class Registering:
    """Controller 2, as one process of it."""

    def __init__(self, house: House, seed: int) -> None:
        self.channel = Channel(house)
        self.registration = ControllerRegistration(self.channel, 2, [PLACE], random.Random(seed))
        house.publisher.subscribe(self.registration)

    async def for_seconds(self, duration: float) -> None:
        try:
            async with asyncio.timeout(duration):
                await self.registration.run()
        except TimeoutError:
            pass


def registered(house: House) -> ControllerImage | None:
    found: ControllerImage | None = house.image.brokers.controllers.get(2)
    return found


def test_controller_registers_once_with_listeners_and_features() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        one = Registering(house, 1)
        await one.for_seconds(600)
        assert len(one.channel.seen) == 1
        assert registered(house) == ControllerImage(
            controller_id=2,
            incarnation_id=one.channel.seen[0][1],
            endpoints=(AdvertisedEndpoint("CONTROLLER", "host2", 9093, 3),),
            features=tuple(sorted((n, FeatureRange(r.min_level, r.max_level)) for n, r in SUPPORTED_FEATURES.items())),
        )

    play(scenario)


def test_restarted_controller_replaces_its_registration() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        first, second = Registering(house, 1), Registering(house, 2)
        await first.for_seconds(5)
        house.publisher.unsubscribe(first.registration)
        await second.for_seconds(5)
        assert (len(first.channel.seen), len(second.channel.seen)) == (1, 1)
        found = registered(house)
        assert found is not None
        assert found.incarnation_id == second.channel.seen[0][1] != first.channel.seen[0][1]

    play(scenario)


def test_registration_is_retried_with_growing_pauses() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(5)  # the image has its features
        house.log.elect(3)
        one = Registering(house, 1)
        await one.for_seconds(60)
        times = [when for when, _ in one.channel.seen]
        pauses = [after - before for before, after in itertools.pairwise(times)]
        assert registered(house) is None
        assert pauses[0] <= 0.1
        assert 5 <= pauses[-1] <= 10
        house.log.elect(1)
        await one.for_seconds(60)
        found = registered(house)
        assert found is not None
        assert found.incarnation_id == one.channel.seen[-1][1]

    play(scenario)


def test_registration_is_not_sent_below_its_metadata_version() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(5)
        house.log.append([FeatureLevelRecord(name="metadata.version", feature_level=14)])
        one = Registering(house, 1)
        await one.for_seconds(60)
        assert one.channel.seen == []
        answer = await house.service.call(ControllerRegistrationRequest(controller_id=2), 0)
        assert isinstance(answer, ControllerRegistrationResponse)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        house.log.append([FeatureLevelRecord(name="metadata.version", feature_level=15)])
        await one.for_seconds(60)
        assert len(one.channel.seen) == 1

    play(scenario)


def test_feature_level_is_limited_by_every_controller() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        old = [ControllerFeature(name="streams.version", min_supported_version=0, max_supported_version=0)]
        await house.brokers(5)
        house.log.append([RegisterControllerRecord(controller_id=2, features=old)])
        update = FeatureUpdateKey(feature="streams.version", max_version_level=1, upgrade_type=1)
        answer = await house.service.call(UpdateFeaturesRequest(feature_updates=[update]), 2)
        assert isinstance(answer, UpdateFeaturesResponse)
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.INVALID_UPDATE_VERSION,
            "Invalid update version 1 for feature streams.version. Controller 2 only supports versions 0-0",
        )

    play(scenario)


def test_registration_is_retried_after_a_channel_error() -> None:
    class Broken(Channel):
        async def call(self, request: Message, version: int, ctx: object = None) -> Message:
            if len(self.seen) < 3:
                self.seen.append((0.0, UUID(int=0)))
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            return await super().call(request, version)

    async def scenario(house: House) -> None:
        house.log.elect(1)
        one = Registering(house, 1)
        one.registration._channel = channel = Broken(house)
        await one.for_seconds(60)
        assert len(channel.seen) == 4
        assert registered(house) is not None

    play(scenario)
