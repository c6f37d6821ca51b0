"""Machine: counts the steps of one comparison of two schemas, and ends it after EFFORT_MAX.

A schema of 1 MB can ask for 10,000,000,000 steps: unions are compared branch by branch, and definitions that refer to
each other multiply with every level. No schema that people or programs have written for data comes near EFFORT_MAX.
"""

from __future__ import annotations

from typing import Final

from barnabas.registry.errors import InvalidSchemaError

EFFORT_MAX: Final = 100_000
"""The most steps of one comparison: about two seconds. A union of 300 branches, compared with itself, takes 90,000; a
record of 10,000 fields 10,000."""


class Effort:
    """The steps that one comparison may still take."""

    def __init__(self) -> None:
        self._left = EFFORT_MAX

    def spend(self, steps: int = 1) -> None:
        """Count steps. Raises InvalidSchemaError when there are too many."""
        self._left -= steps
        if self._left < 0:
            raise InvalidSchemaError(
                f"The schema cannot be compared with the previous version in {EFFORT_MAX} steps. Use smaller unions and"
                " fewer references, or another subject, or level NONE."
            )
