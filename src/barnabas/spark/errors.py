"""Value: the errors of the Spark source and sink. Each message says what to do next.

BarnabasError
└─ SparkSourceError
   ├─ OptionError       an option is missing, not valid in this mode, or has an invalid value
   ├─ DataLossError     records that the query has not read are deleted (failOnDataLoss=true)
   ├─ RecordError       a key or value cannot be read in its format (errors.tolerance=none)
   ├─ SchemaChangedError  a record has another schema than the query reads with (schema.evolution)
   ├─ SinkError         a row cannot be written: no topic, wrong column type, rejected by the broker
   └─ DeliveryError     a micro-batch cannot be committed exactly once: rows are lost, or two drivers run
      ├─ BatchConflictError  the ledger has another micro-batch than the checkpoint: one of them is not the right one
      └─ RecoveryError  what an earlier run of the query left open cannot be ended, so that no micro-batch begins
"""

from __future__ import annotations

import pickle

from barnabas.core.errors import BarnabasError


class SparkSourceError(BarnabasError):
    """The base class of the errors of this package."""


class OptionError(SparkSourceError, ValueError):
    """An option of `format("barnabas")` is missing or invalid."""


class DataLossError(SparkSourceError):
    """Records after the query's position are deleted, and `failOnDataLoss` is true."""


class RecordError(SparkSourceError):
    """The key or the value of a record cannot be read in its format, and `errors.tolerance` is none."""


class SchemaChangedError(SparkSourceError):
    """A record was written with another schema than the query reads with, and `schema.evolution` does not allow it."""


class SinkError(SparkSourceError):
    """The rows that Spark passed to the sink cannot be written."""


class DeliveryError(SparkSourceError):
    """A micro-batch is not committed, or was committed in part. The message says which, and what to do."""


class BatchConflictError(DeliveryError):
    """The ledger of a target has a micro-batch that the checkpoint does not have, or has as another one. `conflict` is
    the `BatchConflict` of `delivery/identity.py`, which `barnabas pipelines repair` decides.
    """

    def __init__(self, message: str, conflict: object = None) -> None:
        super().__init__(message)
        self.conflict = conflict


class RecoveryError(DeliveryError, pickle.PickleError):
    """What an earlier run of the query left open cannot be committed or aborted, so that no micro-batch begins.

    The sink recovers while PySpark pickles its writer for the tasks. PySpark's `CloudPickleSerializer.dumps` reports
    any exception as "Could not serialize object", except a PickleError, which it raises as it is.
    """
