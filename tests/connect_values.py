"""Random schemas of Kafka Connect, and values that fit them, for tests of converters."""

from __future__ import annotations

import datetime
import decimal
import itertools
import random
import struct
from typing import Any

from barnabas.spark.connectors.connect_schemas import (
    DATE_NAME,
    DECIMAL_NAME,
    DECIMAL_SCALE,
    TIME_NAME,
    TIMESTAMP_NAME,
    ConnectField,
    ConnectSchema,
    ConnectType,
    decimal_schema,
)

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_TEXTS = ("", "a", 'say "hi"\\', "\x00\x1f\n\t", "é", "\u2028", "\ud7ff", "😀 z", "null")
# No -0.0: Connect's JsonConverter reads it as 0.0.
_FLOATS = (0.0, 1.0, -1.5, 0.1, 1e-3, 9.999e-4, 1e7, 9999999.0, 123456789.125, 1e300, 5e-324, 2.5e-320, 1e21)
_BITS = {ConnectType.INT8: 8, ConnectType.INT16: 16, ConnectType.INT32: 32, ConnectType.INT64: 64}
_SINGLE = tuple(kind for kind in ConnectType if kind not in (ConnectType.ARRAY, ConnectType.MAP, ConnectType.STRUCT))


class RandomSchemas:
    """Makes schemas and values from one source of random numbers; maps have at most `entries_max` entries."""

    def __init__(self, rng: random.Random, *, entries_max: int = 3) -> None:
        self._rng = rng
        self._entries_max = entries_max
        self._numbers = itertools.count()

    def struct(self, depth: int = 2, *, optional: bool | None = False) -> ConnectSchema:
        """A struct of one to six fields; every other nested one has no name."""
        rng, number = self._rng, next(self._numbers)
        fields = tuple(ConnectField(f"f{at}", self.schema(depth)) for at in range(rng.randint(1, 6)))
        name = f"t.S{number}" if number == 0 or rng.random() < 0.5 else None
        version = rng.choice([None, 1, 7]) if name else None
        is_optional = rng.random() < 0.5 if optional is None else optional
        return ConnectSchema(ConnectType.STRUCT, is_optional, name, version, fields=fields)

    def schema(self, depth: int) -> ConnectSchema:
        """A schema of any type; arrays, maps and structs up to this depth."""
        rng = self._rng
        optional = rng.random() < 0.5
        shape = rng.random() if depth else 1.0
        if shape < 0.15:
            return ConnectSchema(ConnectType.ARRAY, optional, items=self.schema(depth - 1))
        if shape < 0.3:
            kind = rng.choice([ConnectType.STRING, ConnectType.STRING, ConnectType.INT32])
            return ConnectSchema(ConnectType.MAP, optional, keys=ConnectSchema(kind), items=self.schema(depth - 1))
        if shape < 0.5:
            return self.struct(depth - 1, optional=None)
        if rng.random() < 0.3:
            return rng.choice(
                [
                    decimal_schema(9, 2, optional=optional),
                    decimal_schema(38, 10, optional=optional),
                    ConnectSchema(ConnectType.INT32, optional, DATE_NAME, 1),
                    ConnectSchema(ConnectType.INT32, optional, TIME_NAME, 1),
                    ConnectSchema(ConnectType.INT64, optional, TIMESTAMP_NAME, 1),
                    ConnectSchema(ConnectType.INT64, optional, "io.debezium.time.MicroTimestamp", 1),
                    ConnectSchema(ConnectType.STRING, optional, "a.Text", 2, "a text", {"length": "9"}),
                ]
            )
        return ConnectSchema(rng.choice(_SINGLE), optional)

    def value(self, schema: ConnectSchema) -> Any:
        """A value as Arrow takes it; null at times if the schema is optional."""
        rng = self._rng
        if schema.optional and rng.random() < 0.3:
            return None
        match schema.type:
            case ConnectType.STRUCT:
                return {part.name: self.value(part.schema) for part in schema.fields}
            case ConnectType.ARRAY:
                assert schema.items is not None
                return [self.value(schema.items) for _ in range(rng.randint(0, 3))]
            case ConnectType.MAP:
                assert schema.keys is not None
                assert schema.items is not None
                keys = {self.value(schema.keys) for _ in range(rng.randint(0, self._entries_max))}
                return [(key, self.value(schema.items)) for key in sorted(keys)]
            case ConnectType.BYTES if schema.name == DECIMAL_NAME:
                digits = 8 if "9" in schema.parameters.values() else 37
                number = rng.randint(-(10**digits), 10**digits) // 10 ** rng.randint(0, digits)
                with decimal.localcontext(prec=100):
                    return decimal.Decimal(number).scaleb(-int(schema.parameters[DECIMAL_SCALE]))
            case ConnectType.BYTES:
                return rng.randbytes(rng.randint(0, 5))
            case ConnectType.STRING:
                return rng.choice(_TEXTS)
            case ConnectType.BOOLEAN:
                return rng.random() < 0.5
            case ConnectType.FLOAT64:
                return rng.choice(_FLOATS) if rng.random() < 0.5 else self._double()
            case ConnectType.FLOAT32:
                return self._float()
            case _:
                return self._integer(schema)

    def _integer(self, schema: ConnectSchema) -> Any:
        rng = self._rng
        if schema.name == DATE_NAME:
            return _EPOCH.date() + datetime.timedelta(days=rng.randint(-100_000, 100_000))
        if schema.name == TIME_NAME:
            return (_EPOCH + datetime.timedelta(milliseconds=rng.randrange(86_400_000))).time()
        if schema.name == TIMESTAMP_NAME:
            return _EPOCH + datetime.timedelta(milliseconds=rng.randint(-(10**13), 10**13))
        top = 1 << _BITS[schema.type] - 1
        return rng.choice([0, -1, top - 1, -top, rng.randrange(-top, top)])

    def _double(self) -> float:
        """A number of random bits that is finite."""
        while True:
            (found,) = struct.unpack("<d", self._rng.randbytes(8))
            if abs(found) < float("inf"):
                return float(found)

    def _float(self) -> float:
        """A number that a float holds, of random bits, and finite."""
        while True:
            (found,) = struct.unpack("<f", self._rng.randbytes(4))
            if abs(found) < float("inf"):
                return float(found)
