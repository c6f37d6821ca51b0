"""The keywords of the clients, as type checkers see them, are the configs of the clients (`--rewrite` writes them)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import barnabas.client
from barnabas.client.config import ADMIN_CONFIGS, CLUSTER_CONFIGS, CONSUMER_CONFIGS, PRODUCER_CONFIGS
from barnabas.core.config import ConfigDef, ConfigKey, ConfigType, OneOf, default_of, value_to_text

FILE: Final = Path(barnabas.client.__file__).with_name("typed_settings.py")
WIDTH: Final = 120
HEAD: Final = '''\
"""Table: the configs of the clients as types of keyword arguments, for editors and type checkers.

    producer = Producer(bootstrap_servers="localhost:9092", linger_ms=20)
    settings: ProducerSettings = {"bootstrap_servers": "localhost:9092", "linger_ms": 20}
    producer = Producer(**settings)

`config.py` has the definitions. `pytest tests/golden --rewrite` writes this file from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypedDict

Texts = str | list[str] | tuple[str, ...]
"""A list, or one text with commas."""
'''
CLASSES: Final = (
    ("ClusterSettings", "TypedDict", CLUSTER_CONFIGS, "The configs that all clients share."),
    ("ProducerSettings", "ClusterSettings", PRODUCER_CONFIGS, "The configs of producers."),
    ("ConsumerSettings", "ClusterSettings", CONSUMER_CONFIGS, "The configs of consumers and share consumers."),
    ("AdminSettings", "ClusterSettings", ADMIN_CONFIGS, "The configs of administrative clients."),
)
_TYPES: Final = {
    ConfigType.BOOLEAN: "bool",
    ConfigType.SHORT: "int",
    ConfigType.INT: "int",
    ConfigType.LONG: "int",
    ConfigType.DOUBLE: "float",
    ConfigType.LIST: "Texts",
    ConfigType.STRING: "str",
    ConfigType.CLASS: "str",
    ConfigType.PASSWORD: "str",
}


def annotation(key: ConfigKey) -> str:
    """The type of a config's values: choices as literals, of which numbers may be given as numbers."""
    if key.is_object:
        return "Callable[..., Any] | None"
    found = _TYPES[key.type]
    if isinstance(key.validator, OneOf) and found == "str":
        choices = key.validator.choices
        values = [f'"{choice}"' for choice in choices] + [choice for choice in choices if choice.lstrip("-").isdigit()]
        found = f"Literal[{', '.join(values)}]"
    return f"{found} | None" if key.default is None else found


def documentation(key: ConfigKey) -> list[str]:
    default = value_to_text(default_of(key))
    text = f"{key.doc.rstrip('.')}." if default in (None, "") else f"{key.doc.rstrip('.')}. Default: {default}."
    lines = textwrap.wrap(f'"""{text}"""'.replace("\\", "\\\\"), WIDTH - 4, break_long_words=False)
    return [f"    {line}" for line in lines]


def render() -> str:
    parts = [HEAD]
    for name, bases, table, doc in CLASSES:
        parts.append(f'\n\nclass {name}({bases}, total=False):\n    """{doc}"""\n')
        for key in _own(table, bases):
            parts.append(f"\n    {key.name.replace('.', '_')}: {annotation(key)}\n")
            parts.append("\n".join(documentation(key)) + "\n")
    return "".join(parts)


def _own(table: ConfigDef, bases: str) -> Iterator[ConfigKey]:
    for key in table:
        if bases == "TypedDict" or key.name not in CLUSTER_CONFIGS:
            yield key


def test_keywords_of_the_clients_are_their_configs(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--rewrite"):
        FILE.write_text(render(), encoding="utf-8")
    else:
        assert FILE.read_text(encoding="utf-8") == render()
