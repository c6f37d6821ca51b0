"""Value: the base class of all metadata records."""

from __future__ import annotations

from barnabas.protocol.wire.schema import Message


class MetadataRecord(Message):
    """One fact in the metadata log; `key` tells the kinds apart, as an API key does for requests."""
