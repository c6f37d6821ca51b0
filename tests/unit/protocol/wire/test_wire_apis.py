"""The API table agrees with the message classes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas.protocol.wire.apis import (
    APIS,
    BOTH,
    CONTROLLER,
    PRIVATE_FROM,
    ApiKey,
    WireApi,
    request_header_version,
    response_header_version,
)
from barnabas.protocol.wire.schema import Request, Response, schema_of
from barnabas.protocol.wire.versions import OPEN_END


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_table_rows_match_the_message_classes(api: WireApi) -> None:
    for cls in (api.request, api.response):
        schema = schema_of(cls)
        assert schema.key == api.key
        assert schema.versions == (api.min_version, api.max_version)
        if api.flexible_from is None:
            assert api.max_version not in schema.flexible
        else:
            assert schema.flexible == (api.flexible_from, OPEN_END)
    assert issubclass(api.request, Request)
    assert issubclass(api.response, Response)
    assert schema_of(api.request).unstable == api.latest_version_unstable


def test_the_table_has_every_key_but_the_removed_ones() -> None:
    kafkas = [key for key in APIS if key < PRIVATE_FROM]
    assert kafkas == [key for key in range(93) if key not in (4, 5, 6, 7)]
    assert [key.name for key in APIS if key >= PRIVATE_FROM] == [
        "EXPLAIN_PARTITION",
        "EXPLAIN_GROUP",
        "RUN_MAINTENANCE",
        "ALTER_LINK",
        "DESCRIBE_LINKS",
        "ALTER_MIRRORS",
        "DESCRIBE_MIRRORS",
        "READ_LINK",
        "READ_MIRROR_STATE",
        "WRITE_MIRROR_STATE",
        "ALTER_MIRROR_TOPICS",
        "DESCRIBE_CLIENTS",
    ]
    assert list(APIS) == list(ApiKey)


def test_listeners() -> None:
    assert APIS[ApiKey.VOTE].listeners == CONTROLLER
    assert APIS[ApiKey.FETCH].listeners == BOTH
    assert APIS[ApiKey.PRODUCE].listeners == {"broker"}


def test_header_versions() -> None:
    assert request_header_version(ApiKey.METADATA, 8) == 1
    assert request_header_version(ApiKey.METADATA, 9) == 2
    assert response_header_version(ApiKey.METADATA, 8) == 0
    assert response_header_version(ApiKey.METADATA, 9) == 1
    assert request_header_version(ApiKey.SASL_HANDSHAKE, 1) == 1
    assert request_header_version(ApiKey.API_VERSIONS, 99) == 2
    assert [response_header_version(ApiKey.API_VERSIONS, version) for version in range(6)] == [0] * 6


def test_importing_the_table_imports_no_message_module() -> None:
    code = "import sys, barnabas.protocol.wire.server_conn; print([m for m in sys.modules if '.wire.messages.' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
