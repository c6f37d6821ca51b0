"""Codec: the keys and values of records -> columns: the fields of structs, and the members of JSON objects.

JSON without a schema is a column of texts or bytes with the metadata `barnabas.format=json` (transforms/records.py), or
a map. A member gets the type that its values have in the batch. Numbers that a double would change become texts with
all of their digits. A column of texts has the metadata UNTYPED, since such a text may be bytes in base64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec import Struct

from barnabas.spark.connectors.converters.runs import FORMAT, is_json
from barnabas.spark.errors import SinkError

_OF_JSON: Final = {FORMAT: b"json"}
UNTYPED: Final = b"barnabas.untyped"
_IS_UNTYPED: Final = {UNTYPED: b"true"}
_EXACT_LENGTH: Final = 15
"""A number in decimal notation with so many characters is the same number as a double."""


def _number(text: str) -> float | Decimal:
    """A JSON number that is no integer: as a double, or with all of its digits if no double prints as it."""
    found = float(text)
    if len(text) <= _EXACT_LENGTH and "e" not in text and "E" not in text:
        return found
    exact = Decimal(text)
    return found if math.isfinite(found) and Decimal(repr(found)) == exact else exact


_DECODER: Final = msgspec.json.Decoder(float_hook=_number)
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")


class Fields(Struct, frozen=True):
    """The fields of keys or values. `columns` has an Arrow array for each field, `absent` an Arrow bool array for each
    field that some rows lack, and `metadata` the Arrow metadata of fields, such as the name of a logical type.
    """

    columns: dict[str, Any]
    absent: Mapping[str, Any] = {}
    metadata: Mapping[str, Any] = {}


def read_fields(batch: Any, part: str, *, keeps_json: bool) -> Fields:
    """The fields of a key or value as columns. Raises SinkError if the part has no fields."""
    field = batch.schema.field(part)
    array = batch.column(part)
    if pa.types.is_struct(field.type):
        columns = {child.name: column for child, column in zip(field.type, array.flatten(), strict=True)}
        return Fields(columns, metadata=_metadata(batch, part))
    if is_json(field) or pa.types.is_map(field.type):
        return _object_fields(array, field, keeps_json=keeps_json)
    if array.null_count == len(array):
        return Fields({})
    raise SinkError(
        f"the {part} of a record is {field.type}, and a row of a table needs fields: set the {part}.converter that fits"
        f" (JsonConverter, AvroConverter), or wrap the {part} with the transform HoistField"
    )


def _object_fields(array: Any, field: Any, *, keeps_json: bool) -> Fields:
    """The members of JSON objects as columns, with the types that their values have."""
    objects = []
    given = array.to_pylist()
    for cell in given:
        if cell is not None and not isinstance(cell, list):
            try:
                cell = _DECODER.decode(cell)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise SinkError(f"a {field.name} is not JSON ({error}): set the converter that fits") from None
        objects.append(dict(cell) if isinstance(cell, list) else cell)
    wrong = next((each for each in objects if each is not None and not isinstance(each, dict)), None)
    if wrong is not None:
        raise SinkError(
            f"a {field.name} is a JSON {type(wrong).__name__}, and a row of a table needs an object: wrap it with the"
            " transform HoistField"
        )
    names = list(dict.fromkeys(name for each in objects if each for name in each))
    columns: dict[str, Any] = {}
    absent: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    for name in names:
        cells = [None if each is None else each.get(name) for each in objects]
        if keeps_json and _is_json_column(cells):
            texts = [
                None if value is None else _member_text(cell, value, name)
                for cell, value in zip(given, cells, strict=True)
            ]
            columns[name], metadata[name] = pa.array(texts, pa.string()), _OF_JSON
            _note_absent(absent, name, objects)
            continue
        columns[name] = _typed(cells)
        if pa.types.is_string(columns[name].type):
            metadata[name] = _IS_UNTYPED
        _note_absent(absent, name, objects)
    return Fields(columns, absent, metadata)


def _typed(cells: Sequence[Any]) -> Any:
    """The values of a member in the type that they have. Texts, as they are in JSON, hold values of several types, and
    numbers of any size.
    """
    try:
        if not any(isinstance(cell, Decimal) for cell in cells):
            return pa.array(cells)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        pass
    texts = [cell if cell is None or isinstance(cell, str) else _ENCODER.encode(cell).decode() for cell in cells]
    return pa.array(texts, pa.string())


def _note_absent(absent: dict[str, Any], name: str, objects: Sequence[Any]) -> None:
    """Note the objects that lack a member."""
    lacks = [each is not None and name not in each for each in objects]
    if any(lacks):
        absent[name] = pa.array(lacks)


def _is_json_column(cells: Sequence[Any]) -> bool:
    """Whether the cells are objects and lists, of which one is or has an object."""
    return any(map(_has_object, cells)) and all(cell is None or isinstance(cell, (dict, list)) for cell in cells)


def _has_object(cell: Any) -> bool:
    return isinstance(cell, dict) or (isinstance(cell, list) and any(map(_has_object, cell)))


def _member_text(cell: Any, value: Any, name: str) -> str:
    """The JSON text of a member of a JSON object: as it is in the record, without white space, so that equal keys have
    equal texts. A map, whose cell is a list, has only the member's `value`.
    """
    if isinstance(cell, list):
        return msgspec.json.encode(value).decode()
    return msgspec.json.format(bytes(_decoder(name).decode(cell).member), indent=-1).decode()


@lru_cache(maxsize=1000)
def _decoder(name: str) -> Any:
    """Decodes an object's member of this name alone, as it is in the text."""
    kind = msgspec.defstruct("Member", [("member", msgspec.Raw)], rename={"member": name})
    return msgspec.json.Decoder(kind)


def read_key_fields(batch: Any, wanted: tuple[str, ...], *, keeps_json: bool) -> Fields:
    """The fields of the keys as columns; a plain key has the one name that pk.fields gives."""
    field = batch.schema.field("key")
    array = batch.column("key")
    if pa.types.is_struct(field.type) or pa.types.is_map(field.type):
        return read_fields(batch, "key", keeps_json=keeps_json)
    if is_json(field):
        first = next((cell for cell in array.to_pylist() if cell is not None), None)
        text = first.decode() if isinstance(first, bytes) else first
        if text is None or text.lstrip().startswith("{"):
            return read_fields(batch, "key", keeps_json=keeps_json)
        array = pa.array([None if cell is None else msgspec.json.decode(cell) for cell in array.to_pylist()])
    if array.null_count == len(array) and not wanted:
        return Fields({})
    if len(wanted) != 1:
        raise SinkError(
            f"the key of a record is {field.type}, without fields, and pk.fields names {len(wanted)} columns: name one"
        )
    return Fields({wanted[0]: array})


def _metadata(batch: Any, part: str) -> dict[str, Any]:
    """What the fields of keys or values say besides their types, such as the names of Connect's logical types."""
    if part not in batch.schema.names or not pa.types.is_struct(batch.schema.field(part).type):
        return {}
    return {child.name: child.metadata for child in batch.schema.field(part).type if child.metadata}
