"""The schema registry: schemas by subject and version, schema ids in record payloads, and checked schema evolution.

    from barnabas.registry import RegistryClient, AvroSerializer

Importing this package is cheap: each name is imported on first use. `pip install barnabas[registry]` installs the
dependencies.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from barnabas.core.extras import missing_extra

if TYPE_CHECKING:
    from barnabas.registry.client import AsyncRegistryClient as AsyncRegistryClient
    from barnabas.registry.client import RegistryClient as RegistryClient
    from barnabas.registry.errors import IncompatibleError as IncompatibleError
    from barnabas.registry.errors import InvalidSchemaError as InvalidSchemaError
    from barnabas.registry.errors import RegistryError as RegistryError
    from barnabas.registry.serde.avro import AvroDeserializer as AvroDeserializer
    from barnabas.registry.serde.avro import AvroSerializer as AvroSerializer
    from barnabas.registry.serde.json import JsonDeserializer as JsonDeserializer
    from barnabas.registry.serde.json import JsonSerializer as JsonSerializer
    from barnabas.registry.serde.protobuf import ProtobufDeserializer as ProtobufDeserializer
    from barnabas.registry.serde.protobuf import ProtobufSerializer as ProtobufSerializer
    from barnabas.registry.server import RegistryServer as RegistryServer
    from barnabas.registry.values import Compatibility as Compatibility
    from barnabas.registry.values import Mode as Mode
    from barnabas.registry.values import Reference as Reference
    from barnabas.registry.values import RegisteredSchema as RegisteredSchema
    from barnabas.registry.values import Schema as Schema
    from barnabas.registry.values import SchemaType as SchemaType

_HOMES = {
    "AsyncRegistryClient": "client",
    "AvroDeserializer": "serde.avro",
    "AvroSerializer": "serde.avro",
    "Compatibility": "values",
    "IncompatibleError": "errors",
    "InvalidSchemaError": "errors",
    "JsonDeserializer": "serde.json",
    "JsonSerializer": "serde.json",
    "Mode": "values",
    "ProtobufDeserializer": "serde.protobuf",
    "ProtobufSerializer": "serde.protobuf",
    "Reference": "values",
    "RegisteredSchema": "values",
    "RegistryClient": "client",
    "RegistryError": "errors",
    "RegistryServer": "server",
    "Schema": "values",
    "SchemaType": "values",
}
__all__ = [
    "AsyncRegistryClient",
    "AvroDeserializer",
    "AvroSerializer",
    "Compatibility",
    "IncompatibleError",
    "InvalidSchemaError",
    "JsonDeserializer",
    "JsonSerializer",
    "Mode",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "Reference",
    "RegisteredSchema",
    "RegistryClient",
    "RegistryError",
    "RegistryServer",
    "Schema",
    "SchemaType",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(f"{__name__}.{home}"), name)
    except ModuleNotFoundError as error:
        if advice := missing_extra(error):
            raise ModuleNotFoundError(f"{name} of barnabas.registry: {advice}", name=error.name) from error
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
