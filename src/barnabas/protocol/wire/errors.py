"""Value: what can be wrong with bytes or messages.

BarnabasError
└─ WireError                 the bytes are not the message they claim to be, or the message cannot become bytes
   └─ VersionError           the version is not one the message has, or cannot carry a field that is set
"""

from __future__ import annotations

from barnabas.core.errors import BarnabasError


class WireError(BarnabasError):
    """Malformed input, or a value the protocol has no bytes for. The message names the field.

    On a server it means: this connection's byte stream can no longer be trusted, close it.
    """


class VersionError(WireError):
    """The version asked for does not exist, or has no room for a field that was given a value."""
