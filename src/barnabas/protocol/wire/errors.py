"""Value: the exceptions of the wire codecs.

BarnabasError
└─ WireError                 the bytes are not a valid message, or the message cannot be encoded
   └─ VersionError           the message does not have the version, or the version cannot carry a field that is set
"""

from __future__ import annotations

from barnabas.core.errors import BarnabasError


class WireError(BarnabasError):
    """Malformed input, or a value that the protocol cannot encode. The error text names the field.

    After malformed input the frames of the connection cannot be found any more: the connection must be closed.
    """


class VersionError(WireError):
    """The message does not have the version, or the version cannot carry a field that is set."""
