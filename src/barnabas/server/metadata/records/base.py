"""Value: the base class of all metadata records."""

from __future__ import annotations

from barnabas.protocol.wire.schema import Message


class MetadataRecord(Message):
    """One record of the metadata log. `key` identifies its type, as an API key does for requests."""
