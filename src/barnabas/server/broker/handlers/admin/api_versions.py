"""Shell: ApiVersions (key 18), versions 0 to 4.

- 0: the APIs and versions that this listener serves
- 1: throttle time in the response
- 2: as 1
- 3: flexible; software name and version of the client (KIP-511); supported and finalized features (KIP-584)
- 4: lists features whose minimum level is 0, which older clients reject (KAFKA-17011)

The response is derived from the rows of the listener's kind in `broker/apis.py`, so brokers and controllers share this
handler. The header of the response has no tagged fields in any version. For an unknown version
the dispatcher sends a response of version 0 that contains the versions of this API (KIP-511).

Not implemented: ZkMigrationReady is always false.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.client_software import is_valid_software
from barnabas.protocol.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from barnabas.server.broker.apis import ApiTable
from barnabas.server.broker.handlers.admin.port import AdminPort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.metadata.features import SUPPORTED_FEATURES
from barnabas.server.metadata.image.small import KRAFT_VERSION

if TYPE_CHECKING:
    from barnabas.server.broker.handlers.admin.port import AdminPort


async def handle(port: AdminPort, ctx: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if not is_valid_software(request, ctx.api_version):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    ctx.client.software_name = request.client_software_name
    ctx.client.software_version = request.client_software_version
    features = port.metadata.image.features
    finalized = dict(features.levels.items())
    if port.quorum.kraft_version > 0:  # a feature of the quorum, without a record in the image
        finalized[KRAFT_VERSION] = port.quorum.kraft_version
    return ApiVersionsResponse(
        api_keys=advertised(port.apis),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=levels.min_level, max_version=levels.max_level)
            for name, levels in sorted(SUPPORTED_FEATURES.items())
            if ctx.api_version >= 4 or levels.min_level > 0  # KIP-584: older clients reject a minimum of 0
        ],
        finalized_features_epoch=features.finalized_epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(finalized.items())
        ],
    )


@cache
def advertised(table: ApiTable) -> list[ApiVersion]:
    """The APIs of the table with their advertised versions, by ascending key."""
    rows = sorted((key, *served.advertised) for key, served in table.by_key.items())
    return [ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in rows]


def unsupported_version(table: ApiTable) -> ApiVersionsResponse:
    """The response to an unknown version: the versions of ApiVersions, one of which the client then uses (KIP-511)."""
    low, high = table.by_key[ApiKey.API_VERSIONS].advertised
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=low, max_version=high)],
    )
