"""Value: the errors of the Spark source and sink. Each message says what to do next.

BarnabasError
└─ SparkSourceError
   ├─ OptionError       an option is missing, not valid in this mode, or has an invalid value
   ├─ DataLossError     records that the query has not read are deleted (failOnDataLoss=true)
   ├─ SinkError         a row cannot be written: no topic, wrong column type, rejected by the broker
   └─ DeliveryError     a micro-batch cannot be committed exactly once: rows are lost, or two drivers run
"""

from __future__ import annotations

from barnabas.core.errors import BarnabasError


class SparkSourceError(BarnabasError):
    """The base class of the errors of this package."""


class OptionError(SparkSourceError, ValueError):
    """An option of `format("barnabas")` is missing or invalid."""


class DataLossError(SparkSourceError):
    """Records after the query's position are deleted, and `failOnDataLoss` is true."""


class SinkError(SparkSourceError):
    """The rows that Spark passed to the sink cannot be written."""


class DeliveryError(SparkSourceError):
    """A micro-batch is not committed, or was committed in part. The message says which, and what to do."""
