"""Byte equality with kafka-python's own codec, in both directions, and the same values under the same field names."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.wire.codec import decode, encode
from barnabas.protocol.wire.schema import NO_UUID, Message, MessageStruct, schema_of
from tests.property.wire_values import all_messages, messages, versions_of

PACKAGES = ("admin", "consumer", "metadata", "producer", "sasl")


def their_classes() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for package in PACKAGES:
        root = importlib.import_module(f"kafka.protocol.{package}")
        names = [f"{root.__name__}.{m.name}" for m in pkgutil.iter_modules(getattr(root, "__path__", []))]
        for module in (root, *map(importlib.import_module, names)):
            classes = {name: value for name, value in vars(module).items() if isinstance(value, type)}
            found |= {n: c for n, c in classes.items() if getattr(c, "type", None) in ("request", "response")}
    return found


THEIRS = their_classes()
OURS = [pytest.param(cls, id=schema_of(cls).name) for cls in all_messages() if schema_of(cls).name in THEIRS]


def test_most_messages_are_compared() -> None:
    assert len(OURS) >= 100


@pytest.mark.parametrize("cls", OURS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_both_write_the_same_bytes_and_read_the_same_values(cls: type[Message], data: st.DataObject) -> None:
    theirs = THEIRS[schema_of(cls).name]
    shared = [v for v in versions_of(cls) if v <= theirs.max_version]
    version = data.draw(st.sampled_from(shared), label="version")
    message = data.draw(messages(cls, version))
    if schema_of(cls).name == "ApiVersionsResponse":
        message.error_code = 0  # kafka-python takes every error for a version 0 body
    encoded = encode(message, version)
    read = theirs.decode(encoded, version=version)
    assert_same(message, read, version)
    read._header = None  # only requests it built itself have one, and encode() looks
    written = bytes(read.encode(version=version))
    assert written == encoded
    assert decode(cls, version, written) == message


def assert_same(ours: MessageStruct, theirs: Any, version: int) -> None:
    names = {name.replace("_", ""): name for name in theirs.fields}
    for field in schema_of(ours).fields:
        if version not in field.versions or field.name.endswith("authorized_operations"):
            continue  # kafka-python turns authorized operations into sets; their bytes are compared all the same
        mine, other = getattr(ours, field.name), getattr(theirs, names[field.name.replace("_", "")])
        if other is None and version in field.tagged:
            assert mine == field.new_default(), field.name  # a tagged field that was not sent
        elif isinstance(mine, MessageStruct):
            assert_same(mine, other, version)
        elif isinstance(mine, list) and mine and isinstance(mine[0], MessageStruct):
            assert len(mine) == len(other)
            for one, two in zip(mine, other, strict=True):
                assert_same(one, two, version)
        elif mine == NO_UUID:
            assert other in (None, NO_UUID), field.name
        else:
            assert mine == other, field.name
