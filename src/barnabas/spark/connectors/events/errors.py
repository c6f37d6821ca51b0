"""Value: the errors of change events. Each message says where, what happened, and what to do next.

SparkSourceError
└─ EventError             changes cannot be made into events, or events cannot be unwrapped
   └─ EventLimitError     the events of one batch have more bytes than an Arrow column holds
"""

from __future__ import annotations

from barnabas.spark.errors import SparkSourceError


class EventError(SparkSourceError):
    """Row changes cannot be made into events, or events do not have the form that a function needs."""


class EventLimitError(EventError):
    """The keys or the values of one batch have 2 GiB or more together."""
