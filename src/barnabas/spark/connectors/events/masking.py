"""Machine: text columns of changes truncated, masked or hashed before they are in events, as Debezium does.

    column.truncate.to.20.chars=shop\\.public\\..*      texts of more characters are cut
    column.mask.with.8.chars=public\\.users\\.phone     every value is ********, null as well
    column.mask.hash.v2.SHA-256.with.salt.hex.6162=..  the hash of salt and text, in hexadecimal; null stays null

Columns are named as schema.table.column, by regular expressions. Columns that are no text pass unchanged, and so do the
keys of records. A hash is as long as its algorithm makes it, also if the column is shorter.
Source: io.debezium.relational.mapping.MaskStrings and TruncateStrings.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow.compute
from msgspec import Struct, structs

from barnabas.client.columns.byte_column import pa
from barnabas.spark.connectors.events.changes import ChangeBatch, ColumnSchema, Meaning
from barnabas.spark.connectors.option_rows import patterns
from barnabas.spark.errors import OptionError

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

MASK_PREFIXES: Final = ("column.mask.", "column.truncate.")
LENGTH_MAX: Final = 1_000_000
_TRUNCATE: Final = re.compile(r"column\.truncate\.to\.(\d{1,7})\.chars")
_MASK: Final = re.compile(r"column\.mask\.with\.(\d{1,7})\.chars")
_HASH: Final = re.compile(r"column\.mask\.hash\.(v2\.)?(.+)\.with\.salt\.(.+)", re.IGNORECASE)
_HEXADECIMAL: Final = re.compile(r"hex\.((?:[0-9a-f]{2})*)", re.IGNORECASE)
_ALGORITHMS: Final = {
    "md5": "md5",
    "sha-1": "sha1",
    "sha-224": "sha224",
    "sha-256": "sha256",
    "sha-384": "sha384",
    "sha-512": "sha512",
    "sha3-256": "sha3_256",
    "sha3-384": "sha3_384",
    "sha3-512": "sha3_512",
}
_STREAM: Final = b"\xac\xed\x00\x05"
_SHORT_MAX: Final = 0xFFFF


class ColumnRule(Struct, frozen=True):
    """What happens to the text columns whose names match one of the patterns. One of the fields after `names` is set.

    `hash` is the name of an algorithm in hashlib. `serialized` is the first version of hashes, which are those of
    Java's serialized String.
    """

    names: tuple[re.Pattern[str], ...]
    truncate: int | None = None
    mask: int | None = None
    hash: str | None = None
    salt: bytes = b""
    serialized: bool = False

    def matches(self, column: str) -> bool:
        return any(pattern.fullmatch(column) for pattern in self.names)

    def apply(self, values: Any) -> Any:
        """The texts as they are to be in events."""
        if self.truncate is not None:
            return _pc.utf8_slice_codeunits(values, 0, self.truncate)
        if self.mask is not None:
            return pa.repeat(pa.scalar("*" * self.mask, values.type), len(values))
        known: dict[str, str] = {}
        for text in _pc.unique(values.drop_null()).to_pylist():
            known[text] = self._digest(text)
        return pa.array([None if one is None else known[one] for one in values.to_pylist()], values.type)

    def _digest(self, text: str) -> str:
        data = java_serialized(text) if self.serialized else text.encode()
        return hashlib.new(self.hash or "", self.salt + data).hexdigest()


def java_serialized(text: str) -> bytes:
    """A String as Java's ObjectOutputStream writes it, in Java's modified UTF-8."""
    parts = []
    for letter in text:
        if letter == "\0":
            parts.append(b"\xc0\x80")
        elif letter > "\uffff":
            parts += [half.encode("utf-8", "surrogatepass") for half in _surrogates(letter)]
        else:
            parts.append(letter.encode("utf-8", "surrogatepass"))
    data = b"".join(parts)
    if len(data) <= _SHORT_MAX:
        return _STREAM + b"t" + len(data).to_bytes(2, "big") + data
    return _STREAM + b"|" + len(data).to_bytes(8, "big") + data


def _surrogates(letter: str) -> tuple[str, str]:
    code = ord(letter) - 0x10000
    return chr(0xD800 + (code >> 10)), chr(0xDC00 + (code & 0x3FF))


def parse_column_rules(texts: Mapping[str, str]) -> tuple[ColumnRule, ...]:
    """The rules of the options whose names begin with MASK_PREFIXES. Raises OptionError."""
    return tuple(_rule(name, text) for name, text in texts.items())


def _rule(name: str, text: str) -> ColumnRule:
    names = patterns(name, text)
    found = _TRUNCATE.fullmatch(name)
    if found is not None and 0 < int(found[1]) <= LENGTH_MAX:
        return ColumnRule(names, truncate=int(found[1]))
    found = _MASK.fullmatch(name)
    if found is not None and int(found[1]) <= LENGTH_MAX:
        return ColumnRule(names, mask=int(found[1]))
    found = _HASH.fullmatch(name)
    if found is None:
        raise OptionError(
            f"there is no option {name}: write column.truncate.to.20.chars, column.mask.with.8.chars or"
            " column.mask.hash.v2.SHA-256.with.salt.hex.6162"
        )
    if found[2].lower() not in _ALGORITHMS:
        raise OptionError(f"{name} names the algorithm {found[2]}, and there are {', '.join(_ALGORITHMS)}")
    salt = _HEXADECIMAL.fullmatch(found[3])
    if salt is None:
        raise OptionError(
            f"{name}: Spark gives names of options in lower case, so write the salt in hexadecimal, for example"
            f" .with.salt.hex.{found[3].encode().hex()} for the salt {found[3]}"
        )
    salted = bytes.fromhex(salt[1])
    return ColumnRule(names, hash=_ALGORITHMS[found[2].lower()], salt=salted, serialized=found[1] is None)


def with_hexadecimal_salt(name: str) -> str:
    """The name of an option with its salt in hexadecimal, which survives that Spark makes names lower case."""
    found = _HASH.fullmatch(name)
    if found is None or _HEXADECIMAL.fullmatch(found[3]):
        return name
    return f"{name[: found.start(3)]}hex.{found[3].encode().hex()}"


def masked(changes: ChangeBatch, rules: tuple[ColumnRule, ...], *, keeps_keys: bool = False) -> ChangeBatch:
    """The changes with the text columns of the rules changed; the key columns as well, unless `keeps_keys`."""
    apply = _column_rules(changes, rules, keeps_keys)
    if not apply:
        return changes
    sides = {name: _changed(getattr(changes, name), apply) for name in ("before", "after")}
    return structs.replace(changes, **sides)


def _column_rules(
    changes: ChangeBatch, rules: tuple[ColumnRule, ...], keeps_keys: bool
) -> dict[int, list[Callable[[Any], Any]]]:
    table = changes.table
    found: dict[int, list[Callable[[Any], Any]]] = {}
    for at, column in enumerate(table.columns):
        if not is_text(column) or (keeps_keys and at in table.key):
            continue
        chosen: list[Callable[[Any], Any]] = [rule.apply for rule in rules if rule.matches(f"{table.id}.{column.name}")]
        if chosen:
            found[at] = chosen
    return found


def is_text(column: ColumnSchema) -> bool:
    """Whether a column has texts of people, and not of a type such as JSON."""
    kind = column.type
    return column.meaning is Meaning.PLAIN and (pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _changed(side: Any, apply: Mapping[int, list[Callable[[Any], Any]]]) -> Any:
    if side is None:
        return None
    parts = []
    for at in range(side.type.num_fields):
        values = side.field(at)
        if pa.types.is_dictionary(values.type) and at in apply:
            values = values.dictionary_decode()
        for change in apply.get(at, ()):
            values = change(values)
        parts.append(values)
    fields = [field.with_type(part.type) for field, part in zip(side.type, parts, strict=True)]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=side.is_null() if side.null_count else None)
