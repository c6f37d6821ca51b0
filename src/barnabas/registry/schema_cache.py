"""Machine: a cache of parsed schemas. Parsing a schema costs far more than a look-up."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.formats import Parsed, parse
from barnabas.registry.state import RegistryState
from barnabas.registry.subjects import context_of, qualify
from barnabas.registry.values import LATEST, Reference, Schema

_KEPT_MAX: Final = 1_000


class SchemaCache:
    """Parses schemas, and resolves their references from `state`. Keeps the most recently used parsed schemas."""

    def __init__(self, state: RegistryState) -> None:
        self._state = state
        self._parsed: OrderedDict[tuple[str, bytes], Parsed] = OrderedDict()

    def parse_new(self, schema: Schema, subject: str) -> Parsed:
        """Parse a schema from a request, with all checks. Raises InvalidSchemaError."""
        if not schema.text.strip():
            raise InvalidSchemaError("Invalid schema: it is empty.")
        try:
            return self._parse(schema, context_of(subject), strict=True)
        except InvalidSchemaError as error:
            raise InvalidSchemaError(f"Invalid schema of type {schema.type.value}: {error.message}") from error

    def parsed(self, schema: Schema, subject: str) -> Parsed:
        """Parse a stored schema, or return it from the cache. Raises InvalidSchemaError if another registry has stored
        a schema that this one cannot parse.
        """
        context = context_of(subject)
        key = (context, schema.fingerprint)
        known = self._parsed.get(key)
        if known is not None:
            self._parsed.move_to_end(key)
            return known
        parsed = self._parse(schema, context, strict=False)
        self._parsed[key] = parsed
        if len(self._parsed) > _KEPT_MAX:
            self._parsed.popitem(last=False)
        return parsed

    def _parse(self, schema: Schema, context: str, *, strict: bool) -> Parsed:
        def lookup(reference: Reference) -> Schema:
            subject = qualify(reference.subject, context)
            if reference.version == LATEST:
                live = self._state.versions(subject)
                found = live[-1] if live else None
            else:
                found = self._state.find(subject, reference.version)
            if found is None:
                raise InvalidSchemaError(
                    f"The reference {reference.name!r} is to version {reference.version} of subject"
                    f" '{reference.subject}', which does not exist. Register it first."
                )
            return found.schema

        try:
            return parse(schema, lookup, strict=strict)
        except RecursionError:
            raise InvalidSchemaError("The schema is nested too deeply.") from None
