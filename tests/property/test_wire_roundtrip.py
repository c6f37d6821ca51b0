"""What is written can be read again: every message, every version."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.wire.codec import decode, encode, encode_parts
from barnabas.protocol.wire.schema import Message, schema_of
from tests.property.wire_values import all_messages, full, messages, versions_of

MESSAGES = [pytest.param(cls, id=schema_of(cls).name) for cls in all_messages()]


@pytest.mark.parametrize("cls", MESSAGES)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_generated_values_survive(cls: type[Message], data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(versions_of(cls)), label="version")
    message = data.draw(messages(cls, version))
    encoded = encode(message, version)
    assert decode(cls, version, encoded) == message
    assert decode(cls, version, b"head" + encoded, 4) == message
    assert b"".join(encode_parts(message, version)) == encoded


@pytest.mark.parametrize("cls", MESSAGES)
def test_every_version_of_full_and_empty_values_survives(cls: type[Message]) -> None:
    for version in versions_of(cls):
        for size in (0, 1, 3, 200):
            if size == 200 and version != schema_of(cls).versions.high:
                continue  # 200 is for lengths of two bytes; nested arrays of it are slow
            message = full(cls, version, size if size < 200 else 1)
            if size == 200:
                _lengthen(message, version)
            assert decode(cls, version, encode(message, version)) == message


def _lengthen(message: Message, version: int) -> None:
    for field in schema_of(message).fields:
        value = getattr(message, field.name)
        if field.kind == "array" and value and version in field.versions:
            setattr(message, field.name, value * 200)
