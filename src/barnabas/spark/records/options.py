"""Codec: the options of formats, registries and bad records -> `RecordFormats`.

The option names of the registry are those of Confluent's serializers, and the names of `errors.*` are those of Kafka
Connect.
"""

from __future__ import annotations

from importlib.util import find_spec

from barnabas.core.config import ConfigError
from barnabas.registry.access import SOURCE, STORES, TLS, USER_INFO, read_login
from barnabas.spark.errors import OptionError
from barnabas.spark.given_options import GivenOptions
from barnabas.spark.records.formats import (
    DeadLetterOptions,
    ErrorsTolerance,
    PartFormat,
    RecordFormat,
    RecordFormats,
    RegistryAccess,
)

_NEEDED = ("fastavro", "h11", "jsonschema")
"""Modules of the extra `registry`, which the decoders of all formats import."""


def parse_formats(given: GivenOptions) -> RecordFormats:
    """The formats of a query. Raises OptionError for options that contradict each other, or that have no effect."""
    registry = _registry(given)
    key, value = _part(given, "key", registry), _part(given, "value", registry)
    formats = RecordFormats(
        key,
        value,
        registry,
        given.get("schema.evolution"),
        given.get("errors.tolerance"),
        _dead_letters(given),
    )
    if not formats.typed:
        for name in given.only(("schema.registry.url", "errors.tolerance", "errors.deadletterqueue.topic.name")):
            raise OptionError(
                f"{name} has no effect on raw records, which need no decoding: give valueFormat or keyFormat"
            )
    elif any(find_spec(module) is None for module in _NEEDED):
        names = " and ".join(f"{part.part}Format={part.format.value}" for part in formats.typed)
        raise OptionError(f"{names} needs packages that are not installed: pip install 'barnabas[spark,registry]'")
    return formats


def _part(given: GivenOptions, part: str, registry: RegistryAccess | None) -> PartFormat:
    found = PartFormat(
        part == "key",
        given.get(f"{part}Format"),
        given.get(f"{part}Schema"),
        given.get(f"{part}Subject"),
        given.get(f"{part}SchemaVersion"),
        given.get(f"{part}Message"),
    )
    name, kind = f"{part}Format={found.format.value}", found.format
    details = given.only((f"{part}Schema", f"{part}Subject", f"{part}SchemaVersion", f"{part}Message"))
    if kind.is_plain:
        if details:
            raise OptionError(f"{details[0]} has no effect with {name}: give {part}Format, for example avro")
        return found
    if kind is RecordFormat.JSON:
        if set(details) - {f"{part}Schema"}:
            raise OptionError(f"{details[-1]} has no effect with {name}, which uses no registry: use json-schema")
        return found
    if registry is None and found.schema is None:
        raise OptionError(
            f"{name} needs the schema: give schema.registry.url, or {part}Schema if the records do not begin with"
            " schema ids"
        )
    if found.message is not None and kind is not RecordFormat.PROTOBUF:
        raise OptionError(f"{part}Message is for {part}Format=protobuf, not for {kind.value}")
    return found


def _registry(given: GivenOptions) -> RegistryAccess | None:
    url = given.get("schema.registry.url")
    if url is None:
        others = (
            *USER_INFO,
            SOURCE,
            *(f"{TLS}{name}" for name in STORES),
            "auto.register.schemas",
            "use.latest.version",
            "normalize.schemas",
        )
        for name in given.only(others):
            raise OptionError(f"{name} is given without schema.registry.url")
        return None
    try:
        login = read_login(lambda name: given.text(f"kafka.{name}" if name.startswith("sasl.") else name))
    except ConfigError as error:
        raise OptionError(str(error)) from error
    return RegistryAccess(
        url,
        login,
        normalize=given.get("normalize.schemas") is True,
        auto_register=given.get("auto.register.schemas") is not False,
        use_latest=given.get("use.latest.version"),
    )


def _dead_letters(given: GivenOptions) -> DeadLetterOptions | None:
    topic = given.get("errors.deadletterqueue.topic.name")
    if not topic:
        return None
    if given.get("errors.tolerance") is not ErrorsTolerance.ALL:
        raise OptionError(
            "errors.deadletterqueue.topic.name needs errors.tolerance=all: without it, the first bad record stops the"
            " query"
        )
    return DeadLetterOptions(
        topic,
        given.get("errors.deadletterqueue.context.headers.enable") is not False,
        given.get("errors.deadletterqueue.topic.replication.factor") or -1,
    )
