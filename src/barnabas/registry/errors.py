"""Table: the registry's error codes, and the exception that carries one.

    BarnabasError
    └─ RegistryError          an answer with a code of the table; the first three digits are the HTTP status
       ├─ IncompatibleError   409, with the reasons
       └─ InvalidSchemaError  42201, the text is not a schema

Codes and statuses are those of Confluent's REST API; the messages are our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from barnabas.core.errors import BarnabasError


class Code(IntEnum):
    """Error codes of Confluent's REST API."""

    NOT_FOUND = 404
    METHOD_NOT_ALLOWED = 405
    NOT_ACCEPTABLE = 406
    UNSUPPORTED_MEDIA_TYPE = 415
    UNPROCESSABLE = 422
    SUBJECT_NOT_FOUND = 40401
    VERSION_NOT_FOUND = 40402
    SCHEMA_NOT_FOUND = 40403
    SUBJECT_SOFT_DELETED = 40404
    SUBJECT_NOT_SOFT_DELETED = 40405
    VERSION_SOFT_DELETED = 40406
    VERSION_NOT_SOFT_DELETED = 40407
    COMPATIBILITY_NOT_CONFIGURED = 40408
    MODE_NOT_CONFIGURED = 40409
    INCOMPATIBLE_SCHEMA = 409  # the HTTP status itself, as registries up to 7.x answer; newer ones answer 40901
    INVALID_SCHEMA = 42201
    INVALID_VERSION = 42202
    INVALID_COMPATIBILITY = 42203
    INVALID_MODE = 42204
    OPERATION_NOT_PERMITTED = 42205
    REFERENCE_EXISTS = 42206
    ID_DOES_NOT_MATCH = 42207
    INVALID_SUBJECT = 42208
    SCHEMA_TOO_LARGE = 42209
    CONTEXT_NOT_EMPTY = 42211
    STORE_ERROR = 50001
    OPERATION_TIMEOUT = 50002

    @property
    def status(self) -> int:
        return self.value if self.value < 1000 else self.value // 100


class RegistryError(BarnabasError):
    """An error response. `code` is Confluent's error code; other registries may send codes that `Code` does not
    have.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status of the response."""
        return self.code if self.code < 1000 else self.code // 100

    def __str__(self) -> str:
        return f"{self.message} (error code {int(self.code)})"


class InvalidSchemaError(RegistryError):
    """The text is not a valid schema of its type, or a schema to which it refers is missing."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.INVALID_SCHEMA, message)


class IncompatibleError(RegistryError):
    """The schema violates the subject's compatibility level."""

    def __init__(self, message: str, reasons: Sequence[str] = ()) -> None:
        super().__init__(Code.INCOMPATIBLE_SCHEMA, message)
        self.reasons = tuple(reasons)


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(Code.SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def version_not_found(version: int | str) -> RegistryError:
    return RegistryError(Code.VERSION_NOT_FOUND, f"Version {version} not found.")


def schema_not_found(which: object = None) -> RegistryError:
    return RegistryError(Code.SCHEMA_NOT_FOUND, "Schema not found" if which is None else f"Schema {which} not found")
