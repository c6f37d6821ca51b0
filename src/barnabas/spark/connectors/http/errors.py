"""Value: the error of a web service that does not answer.

SinkError
└─ HttpUnavailableError   a request was sent max.retries times in vain, and could be accepted later
"""

from __future__ import annotations

from barnabas.spark.errors import SinkError


class HttpUnavailableError(SinkError):
    """The web service cannot be reached, or says that it is overloaded or out of order."""
