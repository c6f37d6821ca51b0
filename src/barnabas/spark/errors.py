"""Value: what can go wrong between Spark and the log, told so that the reader knows what to do next.

BarnabasError
└─ SparkSourceError
   ├─ OptionError       an option is missing, unknown in this mode, or has a value that cannot be meant
   ├─ DataLossError     records the query still needed are gone (failOnDataLoss=true)
   └─ SinkError         a row cannot be written: no topic, wrong column type, refused by the broker
"""

from __future__ import annotations

from barnabas.core.errors import BarnabasError


class SparkSourceError(BarnabasError):
    """Root of this room's errors."""


class OptionError(SparkSourceError, ValueError):
    """An option of `format("barnabas")` that cannot be honoured."""


class DataLossError(SparkSourceError):
    """Records between the query's position and the log are gone, and `failOnDataLoss` is true."""


class SinkError(SparkSourceError):
    """The rows handed to the sink cannot be written as they are."""
