"""Value: the exceptions of damaged metadata. (Failed requests get error codes, not exceptions.)

BarnabasError
└─ MetadataError             a record of the metadata log or of a snapshot contradicts the state
   └─ MetadataRecordError    the bytes are not a metadata record that this version can read
"""

from __future__ import annotations

from barnabas.core.errors import BarnabasError


class MetadataError(BarnabasError):
    """A committed record contradicts the state to which it is applied. The node must stop, because its metadata is
    damaged."""


class MetadataRecordError(MetadataError):
    """A record value in `__cluster_metadata` cannot be read."""
