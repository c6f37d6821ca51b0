"""Codec: the options `key.converter` and `value.converter`, and those below them -> converters.

    JsonConverter        schemas.enable=true, schema.content, decimal.format=BASE64 (NUMERIC),
                         replace.null.with.default=true
    AvroConverter        schema.registry.url and more: avro_options.py
    StringConverter      converter.encoding=UTF8
    ByteArrayConverter
    ShortConverter, IntegerConverter, LongConverter, FloatConverter, DoubleConverter, BooleanConverter

A class is named alone or with its package, as Connect does.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from barnabas.spark.connectors.connect_schemas import ConnectSchema
from barnabas.spark.connectors.converters.errors import ConverterConfigError
from barnabas.spark.connectors.converters.json_converter import JsonConverter
from barnabas.spark.connectors.converters.json_texts import JsonForm
from barnabas.spark.connectors.converters.numbers import NUMBER_FORMS, NumberConverter
from barnabas.spark.connectors.converters.plain import ByteArrayConverter, StringConverter
from barnabas.spark.connectors.converters.runs import Converter
from barnabas.spark.connectors.json_schemas import ConnectSchemaError, parse_schema

CLASSES: Final = {
    "JsonConverter": "org.apache.kafka.connect.json.JsonConverter",
    "AvroConverter": "io.confluent.connect.avro.AvroConverter",
    "StringConverter": "org.apache.kafka.connect.storage.StringConverter",
    "ByteArrayConverter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    **{name: f"org.apache.kafka.connect.converters.{name}" for name in NUMBER_FORMS},
}
_REFUSED: Final = {
    "JsonSchemaConverter": "io.confluent.connect.json.JsonSchemaConverter",
    "ProtobufConverter": "io.confluent.connect.protobuf.ProtobufConverter",
}
"""Converters of Confluent that there are none of here, as they are written."""
_JSON: Final = ("schemas.enable", "schema.content", "decimal.format", "replace.null.with.default", "schemas.cache.size")
_STRING: Final = ("converter.encoding",)


def make_converter(prefix: str, config: Mapping[str, str], *, is_key: bool) -> Converter:
    """The converter that `config` names by the option `prefix`, such as `key.converter`; by default, JsonConverter.

    Raises ConverterConfigError for an unknown class or option.
    """
    texts = {name.lower(): text.strip() for name, text in config.items()}
    given = texts.get(prefix, "JsonConverter")
    name = next((short for short, full in CLASSES.items() if given in (short, full)), None)
    part = "key" if is_key else "value"
    if given in (*_REFUSED, *_REFUSED.values()):
        raise ConverterConfigError(
            f"{prefix} is {given}, which is not supported: use AvroConverter, whose schemas are in the registry, too,"
            " or JsonConverter. A sink reads such topics without converters, with the option valueFormat"
        )
    if name is None:
        near = difflib.get_close_matches(given.rpartition(".")[2], CLASSES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the converters are {', '.join(CLASSES)}"
        raise ConverterConfigError(f"{prefix} names no converter, got {given!r}: {hint}")
    own = {key.removeprefix(f"{prefix}."): text for key, text in texts.items() if key.startswith(f"{prefix}.")}
    if name == "JsonConverter":
        _check(prefix, own, _JSON)
        decimals = own.get("decimal.format", "BASE64").upper()
        if decimals not in ("BASE64", "NUMERIC"):
            raise ConverterConfigError(f"{prefix}.decimal.format must be BASE64 or NUMERIC, got {decimals!r}")
        form = JsonForm(decimals == "NUMERIC", _boolean(prefix, own, "replace.null.with.default"))
        content = _schema(prefix, own.get("schema.content", ""))
        return JsonConverter(part, schemas=_boolean(prefix, own, "schemas.enable"), form=form, content=content)
    if name == "AvroConverter":
        return _avro_converter(prefix, own, is_key)
    if name == "StringConverter":
        _check(prefix, own, _STRING)
        if own.get("converter.encoding", "UTF8").upper() not in ("UTF8", "UTF-8"):
            raise ConverterConfigError(f"{prefix}.converter.encoding must be UTF8, got {own['converter.encoding']!r}")
        return StringConverter(part)
    _check(prefix, own, ())
    return NumberConverter(part, name) if name in NUMBER_FORMS else ByteArrayConverter(part)


def _avro_converter(prefix: str, own: Mapping[str, str], is_key: bool) -> Converter:
    try:
        from barnabas.spark.connectors.converters.avro_converter import AvroConverter
        from barnabas.spark.connectors.converters.avro_options import AVRO_OPTIONS, parse_avro_options
    except ImportError as error:
        raise ConverterConfigError(
            f"AvroConverter needs the package {error.name}: pip install barnabas[registry]"
        ) from error
    _check(prefix, own, AVRO_OPTIONS)
    return AvroConverter("key" if is_key else "value", parse_avro_options(prefix, own, is_key=is_key))


def _check(prefix: str, own: Mapping[str, str], known: tuple[str, ...]) -> None:
    for name in own:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {prefix}.{near[0]}?" if near else f"it has {', '.join(known) or 'no options'}"
            raise ConverterConfigError(f"the converter has no option {prefix}.{name}: {hint}")


def _schema(prefix: str, text: str) -> ConnectSchema | None:
    """The schema that all records have; None for an empty text, and for null as in Connect."""
    try:
        return parse_schema(text.encode()) if text else None
    except ConnectSchemaError as error:
        raise ConverterConfigError(
            f"{prefix}.schema.content is no schema of JsonConverter ({error}): it looks like"
            ' {"type":"struct","fields":[{"field":"id","type":"int64"}]}'
        ) from error


def _boolean(prefix: str, own: Mapping[str, str], name: str) -> bool:
    text = own.get(name, "true").lower()
    if text not in ("true", "false"):
        raise ConverterConfigError(f"{prefix}.{name} must be true or false, got {text!r}")
    return text == "true"
