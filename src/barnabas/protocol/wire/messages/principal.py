"""Table: the encoding of a principal in an Envelope request."""

from __future__ import annotations

from barnabas.protocol.wire.schema import Message, boolean, string


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()
