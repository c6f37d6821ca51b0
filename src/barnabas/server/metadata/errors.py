"""Value: what can go wrong with metadata itself (answers to requests are error codes, not exceptions).

BarnabasError
└─ MetadataError             the metadata log or a snapshot holds something that cannot be true
   └─ MetadataRecordError    the bytes are not a metadata record this version knows
"""

from __future__ import annotations

from barnabas.core.errors import BarnabasError


class MetadataError(BarnabasError):
    """A committed record contradicts the state it is applied to. The node must not go on: its truth is damaged."""


class MetadataRecordError(MetadataError):
    """A record value in `__cluster_metadata` cannot be read."""
