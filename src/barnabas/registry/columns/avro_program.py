"""Codec: compiles a writer's and a reader's schema into a program for the kernel in `avro_kernels.py`.

The result is a list of steps, and a tree that maps the slots of the steps to Arrow columns. A slot is an array with one
number for each row, in which the kernel stores what a step reads: a value, or the position or length of bytes.

    record User {id: long, name: [null, string], at: {x: float, y: float}}      writer
    LONG 0   STRING 1 (2: its length), null if branch 0   FLOAT 3   FLOAT 4     steps, with their slots
    struct(id = slot 0, name = slot 1, at = struct(x = slot 3, y = slot 4))     tree

Schema resolution happens once, at compile time: a step whose field the reader does not have stores nothing (slot -1),
and a field that the writer does not have is a constant. The items of an array or a map are rows with a program of their
own; the enclosing row's program only skips them. Some pairs of schemas have no program, for example those with unions
of several types, aliases, or defaults that are not scalars. Then fastavro reads the rows record by record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from barnabas.client.columns.byte_column import np, pa
from barnabas.registry.columns.avro_types import FastavroSchema, arrow_type, nullable, type_name


class AvroStep(IntEnum):
    """The kinds of steps of a program: what the kernel reads."""

    NULL = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    BYTES = 6
    FIXED = 7
    ENUM = 8
    RECORD = 9  # only for nullable records: the fields have steps of their own
    ITEMS = 10  # of an array or a map, in blocks; followed by the steps of one item


_STEPS: Final = {
    "null": AvroStep.NULL,
    "boolean": AvroStep.BOOLEAN,
    "int": AvroStep.INT,
    "long": AvroStep.LONG,
    "float": AvroStep.FLOAT,
    "double": AvroStep.DOUBLE,
    "bytes": AvroStep.BYTES,
    "string": AvroStep.BYTES,
    "fixed": AvroStep.FIXED,
    "enum": AvroStep.ENUM,
}
_PROMOTIONS: Final = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("bytes", "string"),
    ("string", "bytes"),
}


_ITEMS_AT: Final = {"array": "items", "map": "values"}
_DECIMAL_DIGITS_MAX: Final = 38
ITEMS_DEPTH_MAX: Final = 16
"""The maximum nesting of arrays and maps. Rows whose schema has deeper nesting are read record by record."""
STEPS_MAX: Final = 10_000
"""The maximum number of steps. A short schema can name each record twice in the next one, so that the number of its
fields doubles with each record; such rows are read record by record.
"""


class NoProgramError(Exception):
    """These schemas cannot be compiled into a program for the kernel. The caller uses fastavro, record by record."""


@dataclass(frozen=True, slots=True)
class Leaf:
    kind: Any
    step: AvroStep
    slot: int
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Constant:
    kind: Any
    value: Any


@dataclass(frozen=True, slots=True)
class StructNode:
    kind: Any
    slot: int  # the slot of the null flag; -1: never null
    fields: tuple[tuple[str, ColumnNode], ...]


@dataclass(frozen=True, slots=True)
class Items:
    """A list, or a map if `key` is set. `slot` is the first of three slots, which hold, for each row, the position at
    which the items begin, the number of items, and the position at which the items end.
    """

    kind: Any
    slot: int
    program: Program
    key: Leaf | None
    value: ColumnNode


ColumnNode = Leaf | Constant | StructNode | Items


@dataclass(slots=True)
class Program:
    """`steps` has five numbers for each step: its kind (an `AvroStep`), its first slot (-1: the value is not stored),
    the index of the null branch (-1: never null), the index of the step that follows after a null, and the size (the
    bytes of a fixed type or the number of an enum's symbols). `slots` is the number of slots.
    """

    steps: list[list[int]] = field(default_factory=list)
    slots: int = 0

    def add(self, step: AvroStep, slots: int, null_branch: int, size: int = 0) -> tuple[int, int]:
        """Add a step that needs `slots` slots. Returns the index of the step and its first slot (-1 without slots).

        Raises NoProgramError if the program would be too long.
        """
        if len(self.steps) >= STEPS_MAX:
            raise NoProgramError("too many fields")
        slot = self.slots if slots else -1
        self.slots += slots
        self.steps.append([step, slot, null_branch, len(self.steps) + 1, size])
        return len(self.steps) - 1, slot

    def table(self) -> Any:
        return np.array(self.steps, np.int64).reshape(-1, 5)


def compile_avro(writer: FastavroSchema, reader: FastavroSchema) -> tuple[Program, ColumnNode]:
    """Compile the program that reads the writer's rows in the shape of the reader's schema. Returns the program, and
    the tree that maps its slots to columns. Raises NoProgramError.
    """
    program = Program()
    node = _Compiler(writer, reader, program).read(writer.parsed, reader.parsed)
    return program, node


@dataclass(slots=True)
class _Compiler:
    writer: FastavroSchema
    reader: FastavroSchema
    program: Program
    depth: int = 0
    within: tuple[str, ...] = ()
    """The writer's records around the present field. A record that contains itself has no program."""

    def read(self, written: Any, wanted: Any) -> ColumnNode:
        null_branch, written = nullable(written)
        wanted_null, wanted = nullable(wanted)
        if null_branch >= 0 and wanted_null < 0:
            raise NoProgramError("null for a reader without null")
        written, wanted = self.writer.resolve(written), self.reader.resolve(wanted)
        name, wanted_name = type_name(written), type_name(wanted)
        if name == "record" and wanted_name == "record":
            return self._record(written, wanted, null_branch)
        if name == wanted_name and name in _ITEMS_AT:
            return self._items(written, wanted, null_branch)
        if name not in _STEPS or not (name == wanted_name or (name, wanted_name) in _PROMOTIONS):
            raise NoProgramError(f"{name} as {wanted_name}")
        if _decimal(written) != _decimal(wanted) or (_decimal(written) or (0,))[0] > _DECIMAL_DIGITS_MAX:
            raise NoProgramError("different decimals, or more than 38 digits")
        if name in ("fixed", "enum"):
            self._same_name(written, wanted)
        size, symbols = _size(written, name), ()
        if name == "fixed" and size != wanted["size"]:
            raise NoProgramError("different sizes")
        if name == "enum":
            symbols = tuple(written["symbols"])
            if not set(symbols) <= set(wanted["symbols"]):
                raise NoProgramError("symbols that the reader does not have")
        step = _STEPS[name]
        _, slot = self.program.add(step, 2 if step in (AvroStep.BYTES, AvroStep.FIXED) else 1, null_branch, size)
        return Leaf(arrow_type(self.reader, wanted), step, slot, symbols)

    def _record(self, written: Any, wanted: Any, null_branch: int) -> StructNode:
        self._same_name(written, wanted)
        self._enter(written)
        place, slot = -1, -1
        if null_branch >= 0:
            place, slot = self.program.add(AvroStep.RECORD, 1, null_branch)
        wanted_fields = {f["name"]: f for f in wanted["fields"]}
        nodes: dict[str, ColumnNode] = {}
        for one in written["fields"]:
            match = wanted_fields.get(one["name"])
            if match is None:
                self._skip(one["type"])
            else:
                nodes[one["name"]] = self.read(one["type"], match["type"])
        for name, one in wanted_fields.items():
            if name not in nodes:
                nodes[name] = self._default(one)
        if place >= 0:
            self.program.steps[place][3] = len(self.program.steps)
        self._leave()
        kind = arrow_type(self.reader, wanted)
        return StructNode(kind, slot, tuple((name, nodes[name]) for name in wanted_fields))

    def _items(self, written: Any, wanted: Any, null_branch: int) -> Items:
        slot = self._skip_items(written, null_branch, 3)
        program, name = Program(), type_name(written)
        key = None
        if name == "map":
            key = Leaf(pa.string(), AvroStep.BYTES, program.add(AvroStep.BYTES, 2, -1)[1])
        inner = _Compiler(self.writer, self.reader, program, within=self.within)
        value = inner.read(written[_ITEMS_AT[name]], wanted[_ITEMS_AT[name]])
        return Items(arrow_type(self.reader, wanted), slot, program, key, value)

    def _skip_items(self, written: Any, null_branch: int, slots: int) -> int:
        """Add the step of an array or a map, and the steps of one item, which store nothing. Returns the first slot."""
        name = type_name(written)
        place, slot = self.program.add(AvroStep.ITEMS, slots, null_branch)
        if name == "map":
            self.program.add(AvroStep.BYTES, 0, -1)
        self.depth += 1
        if self.depth > ITEMS_DEPTH_MAX:
            raise NoProgramError("arrays nested too deeply")
        self._skip(written[_ITEMS_AT[name]])
        self.depth -= 1
        steps = self.program.steps
        if not any(map(_takes_bytes, steps[place + 1 :])):
            raise NoProgramError("items of zero bytes, whose number is not limited by the row's size")
        steps[place][3] = len(steps)
        return slot

    def _skip(self, written: Any) -> None:
        null_branch, written = nullable(written)
        written = self.writer.resolve(written)
        name = type_name(written)
        if name == "record":
            self._enter(written)
            place = self.program.add(AvroStep.RECORD, 0, null_branch)[0] if null_branch >= 0 else -1
            for one in written["fields"]:
                self._skip(one["type"])
            if place >= 0:
                self.program.steps[place][3] = len(self.program.steps)
            self._leave()
        elif name in _ITEMS_AT:
            self._skip_items(written, null_branch, 0)
        elif name in _STEPS:
            self.program.add(_STEPS[name], 0, null_branch, _size(written, name))
        else:
            raise NoProgramError(f"{name} to skip")

    def _enter(self, record: Any) -> None:
        if record["name"] in self.within:
            raise NoProgramError(f"{record['name']} contains itself")
        self.within = (*self.within, record["name"])

    def _leave(self) -> None:
        self.within = self.within[:-1]

    def _default(self, wanted: Any) -> Constant:
        if "default" not in wanted or wanted.get("aliases"):
            raise NoProgramError("no default, or an alias")
        value = wanted["default"]
        part = self.reader.resolve(nullable(wanted["type"])[1])
        plain = type_name(part) in ("null", "boolean", "int", "long", "float", "double", "string", "enum")
        if value is not None and (not plain or (isinstance(part, dict) and part.get("logicalType"))):
            raise NoProgramError("a default that is not a scalar")
        return Constant(arrow_type(self.reader, wanted["type"]), value)

    @staticmethod
    def _same_name(written: Any, wanted: Any) -> None:
        if written["name"] != wanted["name"]:
            raise NoProgramError("different names")


def _size(part: Any, name: str) -> int:
    if name == "fixed":
        return int(part["size"])
    return len(part["symbols"]) if name == "enum" else 0


def _decimal(part: Any) -> tuple[int, int] | None:
    """Precision and scale of a decimal."""
    if isinstance(part, dict) and part.get("logicalType") == "decimal":
        return part["precision"], part.get("scale", 0)
    return None


def _takes_bytes(step: list[int]) -> bool:
    kind, _, null_branch, _, size = step
    return null_branch >= 0 or not (kind in (AvroStep.NULL, AvroStep.RECORD) or (kind == AvroStep.FIXED and size == 0))
