"""Value: the errors of mirroring. Each message says what to do next.

SparkSourceError
└─ MirrorError              mirroring cannot go on
   ├─ MirrorConfigError     a key of the file is missing, unknown, or has an invalid value
   ├─ MirrorRecordError     a record of an internal topic is not what MirrorMaker writes
   └─ MirrorDataLossError   records were deleted before they were copied, or a topic was created anew
"""

from __future__ import annotations

from barnabas.spark.errors import SparkSourceError


class MirrorError(SparkSourceError):
    """The base class of the errors of this package."""


class MirrorConfigError(MirrorError, ValueError):
    """A key of the properties file is missing, unknown, or has an invalid value."""


class MirrorRecordError(MirrorError, ValueError):
    """A record of an internal topic cannot be decoded."""


class MirrorDataLossError(MirrorError):
    """Records of the source cluster are gone that were not copied, and `on.data.loss` is fail."""
