"""Machine: the registration of controllers, with their endpoints and features (KIP-919, `ClusterControlManager`)."""

from __future__ import annotations

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.features import CONTROLLER_REGISTRATION_LEVEL
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.nodes import ControllerEndpoint, ControllerFeature, RegisterControllerRecord


def decide_register_controller(
    image: ClusterImage, request: ControllerRegistrationRequest, ctx: DecideContext
) -> Decision[MetadataRecord, ControllerRegistrationResponse]:
    """Register a controller. A new process replaces the registration of the previous one."""
    if image.features.metadata_version < CONTROLLER_REGISTRATION_LEVEL:
        return Decision(
            ControllerRegistrationResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                error_message="The current MetadataVersion is too old to support controller registrations.",
            )
        )
    if not request.listeners:
        return Decision(
            ControllerRegistrationResponse(
                error_code=ErrorCode.INVALID_REGISTRATION, error_message="A controller needs at least one listener."
            )
        )
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=[
            ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in request.listeners
        ],
        features=[
            ControllerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
    )
    return Decision(ControllerRegistrationResponse(error_message=None), (record,))
