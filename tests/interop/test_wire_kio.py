"""Byte equality with kio, whose classes are generated per version and whose codec is partly native code."""

from __future__ import annotations

import io
from typing import Any

import pytest
from kio import index as kio_index
from kio import serial as kio_serial

from barnabas.protocol.wire.apis import APIS, PRIVATE_FROM, WireApi
from barnabas.protocol.wire.codec import decode, encode
from tests.property.wire_values import full

SIDES = [
    pytest.param(api, side, id=f"{api.name}-{side}")
    for api in APIS.values()
    if api.key < PRIVATE_FROM
    for side in ("request", "response")
]


@pytest.mark.parametrize(("api", "side"), SIDES)
@pytest.mark.parametrize("size", [0, 1, 3])
def test_kio_reads_our_bytes_and_writes_the_same(api: WireApi, side: str, size: int) -> None:
    """Full values, not arbitrary ones: kio turns error codes and times into types of its own, which are narrower."""
    cls: Any = api.request if side == "request" else api.response
    compared = 0
    for version in range(api.min_version, api.max_version + 1):
        try:
            theirs = getattr(kio_index, f"load_{side}_schema")(int(api.key), version)
        except kio_index.KioIndexError:
            continue
        message = full(cls, version, size)
        encoded = encode(message, version)
        entity, length = kio_serial.entity_reader(theirs)(encoded, 0)
        assert length == len(encoded)
        written = io.BytesIO()
        kio_serial.entity_writer(theirs)(written, entity)
        assert written.getvalue() == encoded, version
        assert decode(cls, version, written.getvalue()) == message
        compared += 1
    if not compared:
        pytest.skip(f"kio has no version of {api.name} in common with us")
