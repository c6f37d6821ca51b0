"""Value: the errors of the sink for web services."""

from __future__ import annotations

from barnabas.spark.errors import SinkError


class HttpSinkError(SinkError):
    """A request was refused by the web service, or not answered. The message has the address and the status."""
