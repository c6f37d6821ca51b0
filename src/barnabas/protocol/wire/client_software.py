"""Codec: checks the name and the version of a client's software in an ApiVersions request (KIP-511)."""

from __future__ import annotations

import re

from barnabas.protocol.wire.messages.api_versions import ApiVersionsRequest

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")


def is_valid_software(request: ApiVersionsRequest, version: int) -> bool:
    """Whether the name and the version may be used in metrics and logs. Requests before version 3 have neither."""
    return version < 3 or bool(
        _SOFTWARE.match(request.client_software_name) and _SOFTWARE.match(request.client_software_version)
    )
