"""Principals and the bit fields of operations."""

from __future__ import annotations

import pytest

from barnabas.protocol.security.operations import CLUSTER_OPERATIONS, GROUP_OPERATIONS, TOPIC_OPERATIONS
from barnabas.protocol.security.principals import ANONYMOUS, KafkaPrincipal, parse_principal


def test_principals() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert parse_principal("User:a:b") == KafkaPrincipal("User", "a:b")
    for text in ("alice", ":alice", "User:"):
        with pytest.raises(ValueError, match="Type:name"):
            parse_principal(text)


def test_bit_fields_are_kafkas() -> None:
    # The values that Kafka 4.3 answers without an authorizer (AclEntry.supportedOperations as a bit field).
    assert (TOPIC_OPERATIONS, GROUP_OPERATIONS, CLUSTER_OPERATIONS) == (3576, 3400, 8096)
