"""Machine: UpdateFeatures, the finalized levels of features (KIP-584, `FeatureControlManager`)."""

from __future__ import annotations

from enum import IntEnum

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas.server.metadata.controller.answers import RefusedError, duplicates, invalid_request, message_of
from barnabas.server.metadata.controller.eligible_leaders import elr_enabled, records_to_enable
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.features import (
    CONTROLLER_REGISTRATION_LEVEL,
    DEPENDENCIES,
    ELR_VERSION,
    METADATA_CHANGED_AT,
    METADATA_VERSION_NAMES,
    SUPPORTED_FEATURES,
)
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.small import KRAFT_VERSION, METADATA_VERSION
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.other import FeatureLevelRecord


class UpgradeType(IntEnum):
    """The permitted direction of an update (`FeatureUpdate.UpgradeType`)."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def decide_update_features(
    image: ClusterImage, request: UpdateFeaturesRequest, ctx: DecideContext
) -> Decision[MetadataRecord, UpdateFeaturesResponse]:
    """Make all updates or none: the first invalid one rejects the request. kraft.version has no metadata record: the
    caller requests that update from the quorum."""
    wanted = {update.feature: update.max_version_level for update in request.feature_updates}
    twice = duplicates(update.feature for update in request.feature_updates)
    records: list[MetadataRecord] = []
    try:
        for update in request.feature_updates:
            if update.feature in twice:
                raise invalid_request(f"Provided feature: {update.feature} is duplicated in the request.")
            if _check(image, update, wanted, ctx) and update.feature != KRAFT_VERSION:
                if update.feature == ELR_VERSION and update.max_version_level and not elr_enabled(image):
                    records += records_to_enable(image, ctx.settings.static_config)
                records.append(FeatureLevelRecord(name=update.feature, feature_level=update.max_version_level))
    except KafkaError as error:
        return Decision(UpdateFeaturesResponse(error_code=error.code, error_message=message_of(error)))
    results = [UpdatableFeatureResult(feature=feature) for feature in wanted]
    return Decision(UpdateFeaturesResponse(results=results), () if request.validate_only else records)


def _check(image: ClusterImage, update: FeatureUpdateKey, wanted: dict[str, int], ctx: DecideContext) -> bool:
    """Raises RefusedError when the update is invalid. Returns whether the update changes the level."""
    feature, level = update.feature, update.max_version_level
    upgrade_type = update.upgrade_type
    if ctx.version == 0:  # version 0 had one flag, with the meaning of the later unsafe downgrade
        upgrade_type = UpgradeType.UNSAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    if upgrade_type not in (UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE):
        raise _invalid(feature, level, "The controller does not support the given upgrade type.")
    present = ctx.kraft_version or 0 if feature == KRAFT_VERSION else image.features.level(feature)
    if level < 0:
        raise _invalid(feature, level, "A feature version cannot be less than 0.")
    _check_supported(image, feature, level, ctx)
    if level < present:
        if feature == KRAFT_VERSION:
            raise _invalid(feature, level, "Can't downgrade the version of this feature.")
        if upgrade_type == UpgradeType.UPGRADE:
            raise _invalid(
                feature,
                level,
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
                "unsafe downgrade.",
            )
        if feature == METADATA_VERSION:
            _check_metadata_downgrade(present, level, upgrade_type)
    elif level > present and upgrade_type != UpgradeType.UPGRADE:
        raise _invalid(feature, level, "Can't downgrade to a newer version.")
    for other, least in DEPENDENCIES.get((feature, level), {}).items():
        if wanted.get(other, image.features.level(other)) < least:
            raise _invalid(feature, level, f"It needs {other} at level {least} or above; update that first.")
    return level != present


def _check_supported(image: ClusterImage, feature: str, level: int, ctx: DecideContext) -> None:
    levels = SUPPORTED_FEATURES.get(feature)
    if feature == KRAFT_VERSION and ctx.kraft_version is None:
        raise _invalid(feature, level, "It belongs to a quorum of controllers, and this cluster has none.")
    if levels is None:
        raise _invalid(feature, level, f"Local controller {ctx.settings.node_id} does not support this feature.")
    if level not in levels:
        raise _invalid(
            feature,
            level,
            f"Local controller {ctx.settings.node_id} only supports versions {levels.min_level}-{levels.max_level}",
        )
    nodes = [(f"Broker {broker.broker_id}", broker.features) for broker in image.brokers]
    if image.features.metadata_version >= CONTROLLER_REGISTRATION_LEVEL:
        others = (item for item in image.brokers.controllers.items() if item[0] != ctx.settings.node_id)
        nodes += [(f"Controller {node_id}", controller.features) for node_id, controller in sorted(others)]
    for node, features in nodes:
        supported = dict(features).get(feature)
        if level == 0 and supported is None:
            continue
        if supported is None:
            raise _invalid(feature, level, f"{node} does not support this feature.")
        if level not in supported:
            raise _invalid(feature, level, f"{node} only supports versions {supported.min_level}-{supported.max_level}")


def _check_metadata_downgrade(present: int, level: int, upgrade_type: int) -> None:
    """Raises RefusedError, as Kafka does, for a downgrade of metadata.version that could lose metadata, even if
    `upgrade_type` is UNSAFE_DOWNGRADE. Both types allow any other downgrade."""
    lossy = [changed for changed in METADATA_CHANGED_AT if level < changed <= present]
    if lossy and upgrade_type == UpgradeType.SAFE_DOWNGRADE:
        raise _invalid(
            METADATA_VERSION,
            level,
            f"Refusing to perform the requested downgrade because it might delete metadata information: "
            f"{METADATA_VERSION_NAMES[max(lossy)]} changed what metadata can say.",
        )
    if lossy:
        raise _invalid(METADATA_VERSION, level, "Unsafe metadata downgrade is not supported in this version.")


def _invalid(feature: str, level: int, message: str) -> RefusedError:
    return RefusedError(
        ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {feature}. {message}"
    )
