"""`write_response_header` gives the bytes that the schema of ResponseHeader gives."""

from __future__ import annotations

import pytest

from barnabas.protocol.wire.codec import encode
from barnabas.protocol.wire.headers import ResponseHeader, write_response_header


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("correlation_id", [0, 1, -1, 2**31 - 1, -(2**31)])
def test_response_header(correlation_id: int, version: int) -> None:
    expected = encode(ResponseHeader(correlation_id=correlation_id), version)
    assert write_response_header(correlation_id, version) == expected
