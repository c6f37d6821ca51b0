"""Codec: the options of AvroConverter, with Confluent's names.

schema.registry.url=http://localhost:8081          auto.register.schemas=true, use.latest.version=false
basic.auth.credentials.source=USER_INFO            value.subject.name.strategy=TopicNameStrategy
basic.auth.user.info=name:password                 connect.meta.data=true, enhanced.avro.schema.support=false
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from barnabas.core.config import ConfigError
from barnabas.registry.access import SOURCE, STORES, TLS, USER_INFO, read_login
from barnabas.spark.connectors.converters.avro_schemas import AvroForm
from barnabas.spark.connectors.converters.errors import ConverterConfigError
from barnabas.spark.records.formats import RegistryAccess

Strategy = Callable[[str, bool, str | None], str]
"""(topic, whether the schema is for keys, name of the record) -> subject."""

AVRO_OPTIONS: Final = (
    "schema.registry.url",
    SOURCE,
    *USER_INFO,
    *(f"{TLS}{name}" for name in STORES),
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
    try:
        login = read_login(own.get, prefix=f"{prefix}.", source="URL", store_type="JKS")
    except ConfigError as error:
        raise ConverterConfigError(str(error)) from error
    access = RegistryAccess(
        url,
        login,
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


def _strategy(prefix: str, own: Mapping[str, str], is_key: bool) -> str:
    name = "key.subject.name.strategy" if is_key else "value.subject.name.strategy"
    given = own.get(name, _STRATEGIES[0])
    short = given.rpartition(".")[2]
    if short not in _STRATEGIES or given not in (short, f"io.confluent.kafka.serializers.subject.{short}"):
        raise ConverterConfigError(f"{prefix}.{name} must be one of {', '.join(_STRATEGIES)}, got {given!r}")
    return short
