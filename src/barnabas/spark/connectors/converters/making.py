"""Codec: the options `key.converter` and `value.converter`, and those below them -> converters.

    JsonConverter        schemas.enable=true, decimal.format=BASE64 (NUMERIC), replace.null.with.default=true
    StringConverter      converter.encoding=UTF8
    ByteArrayConverter

A class is named alone or with its package, as Connect does.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from barnabas.spark.connectors.converters.errors import ConverterConfigError
from barnabas.spark.connectors.converters.json_converter import JsonConverter
from barnabas.spark.connectors.converters.json_texts import JsonForm
from barnabas.spark.connectors.converters.plain import ByteArrayConverter, StringConverter
from barnabas.spark.connectors.converters.runs import Converter

CLASSES: Final = {
    "JsonConverter": "org.apache.kafka.connect.json.JsonConverter",
    "StringConverter": "org.apache.kafka.connect.storage.StringConverter",
    "ByteArrayConverter": "org.apache.kafka.connect.converters.ByteArrayConverter",
}
_JSON: Final = ("schemas.enable", "decimal.format", "replace.null.with.default", "schemas.cache.size")
_STRING: Final = ("converter.encoding",)


def make_converter(prefix: str, config: Mapping[str, str], *, is_key: bool) -> Converter:
    """The converter that `config` names by the option `prefix`, such as `key.converter`; by default, JsonConverter.

    Raises ConverterConfigError for an unknown class or option.
    """
    texts = {name.lower(): text.strip() for name, text in config.items()}
    given = texts.get(prefix, "JsonConverter")
    name = next((short for short, full in CLASSES.items() if given in (short, full)), None)
    part = "key" if is_key else "value"
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
        return JsonConverter(part, schemas=_boolean(prefix, own, "schemas.enable"), form=form)
    if name == "StringConverter":
        _check(prefix, own, _STRING)
        if own.get("converter.encoding", "UTF8").upper() not in ("UTF8", "UTF-8"):
            raise ConverterConfigError(f"{prefix}.converter.encoding must be UTF8, got {own['converter.encoding']!r}")
        return StringConverter(part)
    _check(prefix, own, ())
    return ByteArrayConverter(part)


def _check(prefix: str, own: Mapping[str, str], known: tuple[str, ...]) -> None:
    for name in own:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {prefix}.{near[0]}?" if near else f"it has {', '.join(known) or 'no options'}"
            raise ConverterConfigError(f"the converter has no option {prefix}.{name}: {hint}")


def _boolean(prefix: str, own: Mapping[str, str], name: str) -> bool:
    text = own.get(name, "true").lower()
    if text not in ("true", "false"):
        raise ConverterConfigError(f"{prefix}.{name} must be true or false, got {text!r}")
    return text == "true"
