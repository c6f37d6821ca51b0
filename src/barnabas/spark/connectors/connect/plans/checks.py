"""Machine: what is wrong with the keys of a configuration together: references, converters, transforms.

A reference to a secret, such as `${file:/run/secrets/db.properties:password}`, is unknown until the worker starts the
connector. The checks replace it by a placeholder, and leave out errors about the keys whose values have references.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.spark.connectors.connect.cluster.values import ConnectorConfig
from barnabas.spark.connectors.connect.secrets import REFERENCE
from barnabas.spark.connectors.option_rows import ConnectorOption
from barnabas.spark.errors import OptionError

CONVERTERS: Final = ("key.converter", "value.converter", "header.converter")
_PLACEHOLDER: Final = "1"
"""What stands for a reference: a name, a number, a host, a port and a password may be 1."""
_ADDRESSES: Final = {"connection.url": "jdbc:postgresql://localhost:5432/1", "http.url": "http://localhost/"}
"""What stands for an address that begins with a reference."""
_CONVERSIONS: Final = ("key.converter", "value.converter", "transforms", "predicates")


def without_references(
    config: ConnectorConfig, options: Mapping[str, ConnectorOption]
) -> tuple[dict[str, str], frozenset[str]]:
    """The configuration with a placeholder for each reference, and the names of the keys that have references.

    `options` are those of the connector by their names in lower case. A key for which the placeholder is not allowed
    is left out.
    """
    known: dict[str, str] = {}
    unknown: set[str] = set()
    for name, text in config.items():
        if REFERENCE.search(text) is None:
            known[name] = text
            continue
        unknown.add(name)
        replaced = REFERENCE.sub(_PLACEHOLDER, text)
        if REFERENCE.match(text) is not None:
            replaced = _ADDRESSES.get(name.lower(), replaced)
        option = options.get(name.lower())
        try:
            if option is not None:
                option.parse(option.name, replaced)
        except OptionError:
            continue
        known[name] = replaced
    return known, frozenset(unknown)


def mentions(message: str, names: Iterable[str]) -> bool:
    """Whether an error is about one of these keys, or about a key below one of them."""
    return any(_place(message, name) >= 0 for name in names)


def key_of(message: str, config: ConnectorConfig, known: Iterable[str]) -> str | None:
    """The key that an error is about: the first word of the message, or the first key of the configuration that the
    message names. None if the message names no key. `known` are the keys of the connector.
    """
    first = re.split(r"[\s=:,]", message, maxsplit=1)[0]
    for name in (*config, *known):
        if name.lower() == first.lower():
            return name
    if first.startswith(tuple(f"{start}." for start in _CONVERSIONS)):
        return first  # a key that is missing
    places = [(_place(message, name), -len(name), name) for name in config if "." in name]
    return min((each for each in places if each[0] >= 0), default=(0, 0, None))[2]


def _place(message: str, name: str) -> int:
    found = re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", message, re.IGNORECASE)
    return -1 if found is None else found.start()


def conversion_errors(texts: Mapping[str, str], *, converts: bool) -> list[tuple[str, str]]:
    """What is wrong with the transforms of a sink and, if it `converts`, with its converters: each error with the key
    that it is about if it names no other one.
    """
    from barnabas.spark.connectors.converters.errors import ConverterConfigError
    from barnabas.spark.connectors.converters.making import make_converter
    from barnabas.spark.connectors.transforms.chain import compile_chain
    from barnabas.spark.connectors.transforms.errors import TransformConfigError

    given = {name.lower(): text for name, text in texts.items() if name.lower().startswith(_CONVERSIONS)}
    if not given:
        return []  # the rows have columns
    errors: list[tuple[str, str]] = []
    for name in CONVERTERS[:2] if converts else ():
        try:
            make_converter(name, given, is_key=name == "key.converter")
        except (ConverterConfigError, OptionError) as error:
            errors.append((name, str(error)))
    try:
        compile_chain(given)
    except (TransformConfigError, OptionError) as error:
        errors.append(("transforms", str(error)))
    return errors
