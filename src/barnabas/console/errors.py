"""Table: the console's exceptions.

BarnabasError
└─ ConsoleError              an operating failure: the console cannot start, a file cannot be read
   ├─ BadInputError          400, an argument of a page or a field of a form is invalid
   ├─ NotAllowedError        403, the user's role, read-only mode or a CSRF token forbids the request
   ├─ NotFoundError          404, the topic, group, subject ... does not exist
   └─ TooManyError           429, a limit is reached; trying again later can succeed
"""

from __future__ import annotations

from barnabas.core.errors import BarnabasError


class ConsoleError(BarnabasError):
    """An operating failure of the console; the message says what to do."""

    status = 500


class BadInputError(ConsoleError):
    status = 400


class NotAllowedError(ConsoleError):
    status = 403


class NotFoundError(ConsoleError):
    status = 404


class TooManyError(ConsoleError):
    status = 429
