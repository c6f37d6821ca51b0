"""Value: the errors of the single message transforms. Each message says what happened, and what to do next.

SparkSourceError
└─ TransformError
   ├─ TransformConfigError  a key of the configuration is unknown, missing, or has a value that is not allowed
   ├─ TransformPlanError    a transform cannot be applied to columns of these types
   └─ TransformDataError    a value of a record cannot be transformed; Connect calls this a DataException

A chain adds to the latter two which transform failed, and which record it is.
"""

from __future__ import annotations

from msgspec import Struct

from barnabas.spark.errors import SparkSourceError


class TransformError(SparkSourceError):
    """The base class of the errors of the transforms."""


class TransformConfigError(TransformError, ValueError):
    """A key of the configuration is unknown, missing, or has a value that is not allowed."""


class TransformPlanError(TransformError):
    """A transform cannot be applied to columns of these types, so it can be applied to no record of the batch."""


class TransformDataError(TransformError):
    """A value of a record cannot be transformed."""


class RowFailure(Struct, frozen=True):
    """A record that a transform could not be applied to. `row` is its number in the batch given to the chain.

    `label` is the transform's name in `transforms`, `class_name` its class, `error` the class of the exception.
    """

    row: int
    label: str
    class_name: str
    error: str
    message: str
