"""Value: the errors of the converters. Each message says where, what happened, and what to do next.

SparkSourceError
└─ ConverterError            the base class
   ├─ ConverterConfigError   an option of a converter is unknown, missing, or has a value that is not allowed
   ├─ ConverterDataError     a key or value cannot be converted; Connect calls this a DataException
   ├─ ConverterRegistryError the schema registry refuses a schema, or does not answer
   └─ ConverterLimitError    the keys or values of one batch have more bytes than an Arrow column holds
"""

from __future__ import annotations

from barnabas.spark.errors import SparkSourceError


class ConverterError(SparkSourceError):
    """The base class of the errors of the converters."""


class ConverterConfigError(ConverterError, ValueError):
    """An option of a converter is unknown, missing, or has a value that is not allowed."""


class ConverterDataError(ConverterError):
    """A key or value cannot be converted. The message names the row of the batch, counted from 0."""


class ConverterRegistryError(ConverterError):
    """The schema registry refuses a schema, does not have one, or does not answer."""


class ConverterLimitError(ConverterError):
    """The keys or the values of one batch have 2 GiB or more together."""
