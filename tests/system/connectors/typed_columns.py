"""Table: columns of all types for the tests of change capture: a value at random, and how events show it.

Each database has a dictionary of `TypedColumn`s. What an event should show is computed here from the value that the
database's own driver reads, so that the comparison of a topic with its table shares no code with the source.
"""

from __future__ import annotations

import base64
import json
import random
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

Make = Callable[[random.Random], Any]
Show = Callable[[Any], Any]

EPOCH = datetime(1970, 1, 1)
TEXTS = ("", "plain", "with 'quotes' and \\ and \"", "é ß 日本 😀", "line\nend\ttab", " spaces ", '{"a": null}', "NULL")


def same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class TypedColumn:
    """`type` is of DDL, `select` how a statement reads the column. `shown` is what an event has for the value that was
    read; `event` brings the value of an event into that form, where several texts mean the same."""

    type: str
    make: Make
    shown: Show = same
    select: str = "{}"
    event: Show = same


def whole(first: int, last: int) -> Make:
    return lambda rng: rng.choice((first, last, 0 if first < 0 else first, rng.randint(first, last)))


def text(rng: random.Random) -> str:
    return rng.choice(TEXTS) + rng.choice(("", "x" * rng.randint(1, 30)))


def letters(rng: random.Random) -> str:
    return "".join(rng.choices("abcdefghij", k=rng.randint(1, 8)))


def octets(size: int) -> Make:
    return lambda rng: rng.choice((b"", b"\0", bytes(size), rng.randbytes(rng.randint(0, size))))


def exactly(size: int) -> Make:
    return lambda rng: rng.choice((bytes(size), rng.randbytes(size)))


def number(digits: int, scale: int) -> Make:
    return lambda rng: Decimal(rng.choice((-1, 1)) * rng.randrange(10 ** rng.randint(1, digits))).scaleb(-scale)


def real(rng: random.Random) -> float:
    return rng.choice((0.0, 1.1, -2.5e-30, rng.uniform(-1e6, 1e6)))


def day(rng: random.Random) -> date:
    return rng.choice(
        (date(1970, 1, 1), date(9999, 12, 31), date(1000, 1, 1), date.fromordinal(rng.randint(400_000, 900_000)))
    )


def moment(rng: random.Random) -> datetime:
    near = EPOCH + timedelta(days=rng.randint(-100_000, 100_000), microseconds=rng.randrange(86_400_000_000))
    return rng.choice((datetime(9999, 12, 31, 23, 59, 59, 999_999), datetime(1000, 1, 1), EPOCH, near))


def document(rng: random.Random) -> str:
    return json.dumps({"a": [1, None, letters(rng)], "b": text(rng)})


def base64_text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def days(value: date) -> int:
    return (value - EPOCH.date()).days


def micros(value: datetime) -> int:
    return (value - EPOCH) // timedelta(microseconds=1)


def float32(value: Any) -> Any:
    return None if value is None else struct.unpack("<f", struct.pack("<f", value))[0]


def decimal(value: Any) -> Any:
    return None if value is None else Decimal(value)


def zoned(value: datetime) -> str:
    """As text without zeros at the end of the fraction."""
    value = value.astimezone(UTC) if value.tzinfo else value
    fraction = f"{value.microsecond:06d}".rstrip("0")
    return f"{value:%Y-%m-%dT%H:%M:%S}{'.' + fraction if fraction else ''}Z"


def without_zeros(value: Any) -> Any:
    """A zoned time of an event without zeros at the end of its fraction."""
    if value is None or "." not in value:
        return value
    return value.rstrip("Z").rstrip("0").rstrip(".") + "Z"


MARIADB = {
    "tiny": TypedColumn("TINYINT", whole(-128, 127)),
    "small": TypedColumn("SMALLINT UNSIGNED", whole(0, 65535)),
    "medium": TypedColumn("MEDIUMINT", whole(-8388608, 8388607)),
    "great": TypedColumn("BIGINT UNSIGNED", whole(0, (1 << 64) - 1), decimal, event=decimal),
    "ratio": TypedColumn("FLOAT", real, float32, "{} + 0e0", float32),
    "precise": TypedColumn("DOUBLE", real),
    "amount": TypedColumn("DECIMAL(30,10)", number(30, 10), event=decimal),
    "longest": TypedColumn("DECIMAL(50,5)", number(50, 5), event=decimal),
    "flag": TypedColumn("BIT(1)", whole(0, 1), lambda value: value == b"\1"),
    "bits": TypedColumn("BIT(12)", whole(0, 4095), lambda value: base64_text(value[::-1])),
    "year": TypedColumn("YEAR", whole(1901, 2155)),
    "day": TypedColumn("DATE", day, days),
    "clock": TypedColumn(
        "TIME(3)",
        lambda rng: timedelta(milliseconds=rng.randint(-3_020_399_000, 3_020_399_000)),
        lambda value: value // timedelta(microseconds=1),
    ),
    "moment": TypedColumn("DATETIME(6)", moment, micros),
    "stamp": TypedColumn(
        "TIMESTAMP(2) NULL",
        lambda rng: EPOCH + timedelta(seconds=rng.randint(1, 2**31 - 1), milliseconds=10 * rng.randrange(100)),
        zoned,
        event=without_zeros,
    ),
    "fixed": TypedColumn("CHAR(10)", letters),
    "word": TypedColumn("VARCHAR(300)", text),
    "latin": TypedColumn("VARCHAR(20) CHARACTER SET latin1", lambda rng: rng.choice(("", "é€ß", letters(rng)))),
    "six": TypedColumn("BINARY(6)", exactly(6), base64_text),
    "few": TypedColumn("VARBINARY(20)", octets(20), base64_text),
    "choice": TypedColumn("ENUM('x','it''s','y')", lambda rng: rng.choice(("x", "it's", "y"))),
    "several": TypedColumn("SET('p','q','r')", lambda rng: rng.choice(("", "p", "p,r", "p,q,r"))),
    "document": TypedColumn("JSON", document),
    "note": TypedColumn("LONGTEXT", text),
    "file": TypedColumn("LONGBLOB", octets(1000), base64_text),
}

_TEXT = "{}::text"

POSTGRES = {
    "small": TypedColumn("smallint", whole(-32768, 32767)),
    "medium": TypedColumn("integer", whole(-(1 << 31), (1 << 31) - 1)),
    "great": TypedColumn("bigint", whole(-(1 << 63), (1 << 63) - 1)),
    "ratio": TypedColumn("real", real, float32, event=float32),
    "precise": TypedColumn("double precision", real),
    "amount": TypedColumn("numeric(20,5)", number(20, 5), event=decimal),
    "longest": TypedColumn("numeric", number(60, 20), event=decimal),
    "flag": TypedColumn("boolean", lambda rng: rng.random() < 0.5),
    "bits": TypedColumn("bit(5)", lambda rng: f"{rng.randrange(32):05b}", select=_TEXT),
    "day": TypedColumn("date", day, days),
    "clock": TypedColumn(
        "time",
        lambda rng: time(rng.randrange(24), rng.randrange(60), rng.randrange(60), rng.randrange(1_000_000)),
        lambda value: micros(datetime.combine(EPOCH, value)),
    ),
    "moment": TypedColumn("timestamp", moment, micros),
    "stamp": TypedColumn(
        "timestamptz",
        lambda rng: moment(rng).replace(year=rng.randint(1900, 2200), day=1, tzinfo=UTC),
        zoned,
        event=without_zeros,
    ),
    "length": TypedColumn(
        "interval", lambda rng: timedelta(days=rng.randint(-900, 900), seconds=rng.randrange(90_000)), select=_TEXT
    ),
    "fixed": TypedColumn("char(10)", letters, select="rpad({}, 10)"),
    "word": TypedColumn("varchar(300)", text),
    "few": TypedColumn("bytea", octets(20), base64_text),
    "mood": TypedColumn("shop.mood", lambda rng: rng.choice(("sad", "it's ok"))),
    "several": TypedColumn("integer[]", lambda rng: [rng.choice((None, 1, -2)) for _ in range(rng.randrange(4))]),
    "words": TypedColumn("text[]", lambda rng: [rng.choice((None, text(rng), "a,b")) for _ in range(rng.randrange(4))]),
    "document": TypedColumn("jsonb", document, select=_TEXT),
    "written": TypedColumn("json", document, select=_TEXT),
    "unique_id": TypedColumn("uuid", lambda rng: uuid.UUID(int=rng.getrandbits(128)), str),
    "address": TypedColumn("inet", lambda rng: rng.choice(("::1", "10.0.0.0/8", "127.0.0.1")), str),
    "span": TypedColumn("int4range", lambda rng: rng.choice(("empty", "[1,5)", "[,7)")), select=_TEXT),
    "place": TypedColumn("point", lambda rng: f"({rng.randint(-9, 9)},0.5)", select=_TEXT),
    "note": TypedColumn("text", text),
    "file": TypedColumn("bytea", octets(1000), base64_text),
}
