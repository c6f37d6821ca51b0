"""Value: one API request with typed arguments. Invalid arguments raise RegistryError."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.schemas import ID_MAX, SchemaRegistration
from barnabas.registry.service import Registry
from barnabas.registry.state import RegistryState
from barnabas.registry.subjects import DEFAULT_CONTEXT, qualify
from barnabas.registry.values import LATEST, VERSION_MAX, Reference, Schema, SchemaType


@dataclass(frozen=True, slots=True)
class Text:
    """A response that is plain text (a schema) and is not encoded as JSON."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """The argument of each handler. `context` comes from the path's prefix, `/contexts/.ctx/...`."""

    registry: Registry
    arguments: Mapping[str, str]
    query: Mapping[str, Sequence[str]]
    raw_body: bytes
    context: str = DEFAULT_CONTEXT

    @property
    def state(self) -> RegistryState:
        return self.registry.state

    @property
    def subject(self) -> str:
        """The qualified subject of the path. If the subject is an alias, the subject that it stands for."""
        return self.state.alias_of(self.own_subject)

    @property
    def own_subject(self) -> str:
        """The qualified subject of the path, even if it is an alias: configs and modes belong to the alias itself."""
        return qualify(self.arguments["subject"], self.context)

    def flag(self, name: str) -> bool:
        """A boolean query parameter. Python clients write `True`, therefore case is ignored."""
        return self.text(name).lower() == "true"

    def text(self, name: str, default: str = "") -> str:
        values = self.query.get(name)
        return values[-1] if values else default

    def number(self, name: str, default: int) -> int:
        text = self.text(name)
        if not text:
            return default
        try:
            return int(text)
        except ValueError:
            raise RegistryError(Code.NOT_FOUND, f"{name}={text!r} is not a number.") from None

    def page(self, items: Sequence[Any]) -> list[Any]:
        """The part of a list that the query parameters `offset` and `limit` select."""
        offset, limit = max(0, self.number("offset", 0)), self.number("limit", -1)
        return list(items[offset:] if limit < 0 else items[offset : offset + limit])

    @property
    def schema_id(self) -> int:
        try:
            return int(self.arguments["id"])
        except ValueError:
            raise RegistryError(Code.NOT_FOUND, f"{self.arguments['id']!r} is not the id of a schema.") from None

    def version(self) -> int:
        """The version in the path; LATEST for `latest` and -1."""
        text = self.arguments["version"]
        if text == "latest":
            return LATEST
        try:
            number = int(text)
        except ValueError:
            number = 0
        if number != LATEST and not 1 <= number <= VERSION_MAX:
            raise RegistryError(
                Code.INVALID_VERSION,
                f"The specified version '{text}' is not a valid version id. Allowed values are between [1, 2^31-1]"
                ' and the string "latest"',
            )
        return number

    def body(self) -> dict[str, Any]:
        """The request body as a JSON object."""
        try:
            document = json.loads(self.raw_body)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise RegistryError(Code.UNPROCESSABLE, "The body of the request must be a JSON object.")
        return document

    def registration(self) -> SchemaRegistration:
        """The request body as a schema to register or to look up."""
        body = self.body()
        if isinstance(body.get("schema"), (dict, list)):
            body["schema"] = json.dumps(body["schema"])
        if not isinstance(body.get("schema", ""), str):
            raise RegistryError(Code.UNPROCESSABLE, "'schema' must be a string.")
        name = body.get("schemaType") or SchemaType.AVRO.value
        if name not in SchemaType.__members__:
            valid = ", ".join(SchemaType.__members__)
            raise RegistryError(Code.UNPROCESSABLE, f"Invalid schema type {name}; this registry supports {valid}.")
        schema = Schema(
            body.get("schema") or "",
            SchemaType(name),
            _references(body.get("references")),
            _object(body, "metadata"),
            _object(body, "ruleSet"),
        )
        subject = self.subject if "subject" in self.arguments else f":{self.context}:"
        return SchemaRegistration(
            subject, schema, _number(body, "id", ID_MAX), _number(body, "version", VERSION_MAX), self.flag("normalize")
        )


def _references(value: Any) -> tuple[Reference, ...]:
    if value is None:
        return ()
    try:
        return tuple(Reference(str(one["name"]), str(one["subject"]), int(one["version"])) for one in value)
    except (TypeError, KeyError, ValueError):
        message = "'references' must be a list of objects with name, subject and version."
        raise RegistryError(Code.UNPROCESSABLE, message) from None


def _object(body: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise RegistryError(Code.UNPROCESSABLE, f"'{name}' must be an object.")
    return value


def _number(body: Mapping[str, Any], name: str, largest: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= largest:
        raise RegistryError(Code.UNPROCESSABLE, f"'{name}' must be a number up to {largest}.")
    return value
