"""Shell: UpdateFeatures, which may raise kraft.version: the quorum keeps that feature, not the metadata log."""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from barnabas.protocol.wire.schema import Message
from barnabas.server.metadata.controller.answers import message_of
from barnabas.server.metadata.driver import ControllerDriver
from barnabas.server.metadata.image.small import KRAFT_VERSION
from barnabas.server.metadata.ports import KRaftVersionUpdater, MetadataLog
from barnabas.server.metadata.records.other import NoOpRecord


async def update_features(
    driver: ControllerDriver,
    metadata_log: MetadataLog,
    quorum: KRaftVersionUpdater | None,
    request: UpdateFeaturesRequest,
    version: int,
) -> Message:
    """Upgrade kraft.version first, if the rest of the request is valid, because the quorum may reject that upgrade.
    Raises KafkaError as `ControllerDriver.handle` does."""
    wanted = [u.max_version_level for u in request.feature_updates if u.feature == KRAFT_VERSION]
    if quorum is None or request.validate_only or not wanted or wanted[0] <= quorum.kraft_version:
        return await driver.handle(request, version)
    trial = UpdateFeaturesRequest(
        timeout_ms=request.timeout_ms, feature_updates=request.feature_updates, validate_only=True
    )
    refusal = await driver.handle(trial, version)
    assert isinstance(refusal, UpdateFeaturesResponse)
    if refusal.error_code:
        return refusal
    try:
        quorum.upgrade_kraft_version()
    except KafkaError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=message_of(error))
    await metadata_log.propose([NoOpRecord()])  # when this record is committed, all earlier records are, too
    return await driver.handle(request, version)
