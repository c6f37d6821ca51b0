"""Codec: the options of AvroConverter, with Confluent's names.

schema.registry.url=http://localhost:8081          auto.register.schemas=true, use.latest.version=false
basic.auth.credentials.source=USER_INFO            value.subject.name.strategy=TopicNameStrategy
basic.auth.user.info=name:password                 connect.meta.data=true, enhanced.avro.schema.support=false
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from barnabas.spark.connectors.converters.avro_schemas import AvroForm
from barnabas.spark.connectors.converters.errors import ConverterConfigError
from barnabas.spark.records.formats import RegistryAccess

Strategy = Callable[[str, bool, str | None], str]
"""(topic, whether the schema is for keys, name of the record) -> subject."""

AVRO_OPTIONS: Final = (
    "schema.registry.url",
    "basic.auth.credentials.source",
    "basic.auth.user.info",
    "schema.registry.basic.auth.user.info",
    "schema.registry.ssl.truststore.location",
    "schema.registry.ssl.truststore.type",
    "auto.register.schemas",
    "use.latest.version",
    "latest.compatibility.strict",
    "normalize.schemas",
    "key.subject.name.strategy",
    "value.subject.name.strategy",
    "connect.meta.data",
    "enhanced.avro.schema.support",
    "scrub.invalid.names",
    "allow.optional.map.keys",
    "ignore.default.for.nullables",
    "schemas.cache.config",
    "schemas.cache.size",
    "max.schemas.per.subject",
)
_STRATEGIES: Final = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
_SOURCES: Final = ("URL", "USER_INFO")


class AvroOptions(Struct, frozen=True):
    """All options of one converter."""

    registry: RegistryAccess
    form: AvroForm
    strategy: str = _STRATEGIES[0]
    strict: bool = True
    """latest.compatibility.strict: with use.latest.version, a field that the latest version lacks is an error."""


def parse_avro_options(prefix: str, own: Mapping[str, str], *, is_key: bool) -> AvroOptions:
    """The options below `prefix`, such as `value.converter`. Raises ConverterConfigError."""

    def flag(name: str, default: bool) -> bool:
        text = own.get(name, str(default)).lower()
        if text not in ("true", "false"):
            raise ConverterConfigError(f"{prefix}.{name} must be true or false, got {text!r}")
        return text == "true"

    url = own.get("schema.registry.url", "")
    if not url:
        raise ConverterConfigError(
            f"AvroConverter needs the schema registry's address: set {prefix}.schema.registry.url, for example to"
            " http://localhost:8081"
        )
    latest = flag("use.latest.version", False)
    access = RegistryAccess(
        url,
        _user_info(prefix, own),
        _certificates(prefix, own),
        flag("normalize.schemas", False),
        flag("auto.register.schemas", True) and not latest,
        latest,
    )
    form = AvroForm(
        flag("connect.meta.data", True),
        flag("enhanced.avro.schema.support", False),
        flag("scrub.invalid.names", False),
        flag("allow.optional.map.keys", False),
        flag("ignore.default.for.nullables", False),
    )
    return AvroOptions(access, form, _strategy(prefix, own, is_key), flag("latest.compatibility.strict", True))


def _user_info(prefix: str, own: Mapping[str, str]) -> str | None:
    source = own.get("basic.auth.credentials.source", "URL").upper()
    if source not in _SOURCES:
        raise ConverterConfigError(
            f"{prefix}.basic.auth.credentials.source must be {' or '.join(_SOURCES)}, got {source!r}"
        )
    found = own.get("basic.auth.user.info") or own.get("schema.registry.basic.auth.user.info")
    if source == "URL":
        return None
    if not found or ":" not in found:
        raise ConverterConfigError(f"{prefix}.basic.auth.user.info is missing: write name:password")
    return found


def _certificates(prefix: str, own: Mapping[str, str]) -> str | None:
    location = own.get("schema.registry.ssl.truststore.location")
    kind = own.get("schema.registry.ssl.truststore.type", "PEM" if location is None else "JKS").upper()
    if kind != "PEM":
        raise ConverterConfigError(
            f"{prefix}.schema.registry.ssl.truststore.type is {kind}, and only PEM files are read: export the"
            " certificates with `keytool -exportcert -rfc`, and set the type to PEM"
        )
    return location


def _strategy(prefix: str, own: Mapping[str, str], is_key: bool) -> str:
    name = "key.subject.name.strategy" if is_key else "value.subject.name.strategy"
    given = own.get(name, _STRATEGIES[0])
    short = given.rpartition(".")[2]
    if short not in _STRATEGIES or given not in (short, f"io.confluent.kafka.serializers.subject.{short}"):
        raise ConverterConfigError(f"{prefix}.{name} must be one of {', '.join(_STRATEGIES)}, got {given!r}")
    return short
