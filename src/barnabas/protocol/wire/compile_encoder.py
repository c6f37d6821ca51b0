"""Codec: generates, for one message class and version, the Python function that encodes the message.

The generated function (Fetch, version 13, abridged):

    def encode(o, parts, bulk):
        w_0 = parts.append
        if o.replica_id != -1: raise FieldNotCarriedError("version 13 cannot carry it")   # not in version 13
        v_1 = o.topics
        n_1 = len(v_1) + 1
        if n_1 < 128: w_0(pack_iiibiiB(o.max_wait_ms, ..., n_1))                 # fixed fields and one length
        else: w_0(pack_iiibii(o.max_wait_ms, ...)); w_0(uvarint(n_1))
        for o_2 in v_1:
            ...

`parts` collects the encoded pieces. `bulk` has the indexes in `parts` of the records buffers above `BULK_BYTES_MIN`:
`encode_parts` joins the pieces between them, but does not copy these buffers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import cast

from barnabas.core.buffers import Buffer
from barnabas.protocol.wire.layout import FIXED_FORMATS, STRING_BYTES_MAX, VersionLayout, element_field, is_numbers
from barnabas.protocol.wire.primitives import SMALL_ARRAY, UVARINTS, FieldError, array_packers, uvarint
from barnabas.protocol.wire.schema import MessageField, MessageStruct
from barnabas.protocol.wire.source import Compiled, Source

BULK_BYTES_MIN = 4096
_BUFFERS = (bytes, bytearray, memoryview)


class FieldNotCarriedError(FieldError):
    """A field is set that this version cannot carry."""


def compile_encoder(cls: type[MessageStruct], version: int) -> Compiled:
    """The function `encode(message, parts, bulk)` for this version."""
    return _Encoder(cls, version).compile()


def record_buffers(value: Buffer | Sequence[Buffer] | None) -> tuple[Sequence[Buffer], int]:
    """The buffers of a `records` field, and their total length; -1 if the field is None."""
    if value is None:
        return (), -1
    if isinstance(value, _BUFFERS):
        return (value,), len(value)
    return value, sum(map(len, value))


class _Encoder:
    def __init__(self, cls: type[MessageStruct], version: int) -> None:
        self.cls = cls
        self.version = version
        self.layout = VersionLayout(cls, version)
        self.src = src = Source("def encode(o, parts, bulk):")
        src.scope.update(
            FieldError=FieldError,
            FieldNotCarriedError=FieldNotCarriedError,
            record_buffers=record_buffers,
            uvarint=uvarint,
            UVARINTS=UVARINTS,
            pack=struct.pack,
            join=b"".join,
        )
        self.write = "w_0"
        self.formats = ""  # format codes of the fixed-size fields that the next `flush` writes together
        self.values: list[str] = []  # the expressions of these fields

    def compile(self) -> Compiled:
        src = self.src
        src.line("w_0 = parts.append")
        self.struct(self.cls, "o")
        self.flush()
        return src.compile("encode", f"<encoder of {self.cls.__name__} v{self.version}>")

    # ---- structs

    def struct(self, cls: type[MessageStruct], source: str) -> None:
        """Add lines to the generated function that write the struct in the variable `source`."""
        src = self.src
        for field in cls.__schema__.fields:
            with src.at(f".{field.name}"):
                if not self.layout.is_carried(field):
                    if not field.ignorable:
                        condition = self.is_set(field, f"{source}.{field.name}")
                        src.line(
                            f"if {condition}: raise FieldNotCarriedError('version {self.version} cannot carry it')"
                        )
                elif not self.layout.is_tagged(field):
                    self.value(field, f"{source}.{field.name}")
        if not self.layout.flexible:
            return
        tagged = self.layout.tagged(cls)
        if tagged:
            self.tags(tagged, source)
        else:
            self.formats += "x"  # a pad byte is 0: the count of tagged fields

    def is_set(self, field: MessageField, value: str) -> str:
        """An expression that is true if the field differs from its default."""
        default = field.default
        if default is None:
            return f"{value} is not None"
        if field.kind == "array":
            return f"({value} is None or {value})" if field.null.high >= 0 else value
        if field.kind == "struct":
            inner = cast("type[MessageStruct]", field.element).__schema__.fields
            conditions = [self.is_set(f, f"{value}.{f.name}") for f in inner] or ["False"]
            null = f"{value} is None or " if field.null.high >= 0 else ""
            return f"({null}{' or '.join(conditions)})"
        if field.kind == "uuid":
            return f"{value}.int"
        return f"{value} != {default!r}"

    def tags(self, tagged: list[MessageField], source: str) -> None:
        """Write the tagged fields that differ from their defaults, in the order of their tags."""
        src = self.src
        conditions = [self.is_set(field, f"{source}.{field.name}") for field in tagged]
        before = self.formats, self.values
        with src.block(f"if not ({' or '.join(conditions)}):"):
            self.formats += "x"
            self.flush()
        self.formats, self.values = before
        with src.block("else:"):
            self.flush()
            count, pieces = src.name("n"), src.name("tags")
            src.line(f"{count} = 0")
            src.line(f"{pieces} = []")
            for field, condition in zip(tagged, conditions, strict=True):
                with src.block(f"if {condition}:"), src.at(f".{field.name}"):
                    self.tag(field, f"{source}.{field.name}", pieces)
                    src.line(f"{count} += 1")
            src.line(f"{self.write}(uvarint({count}) + join({pieces}))")

    def tag(self, field: MessageField, value: str, pieces: str) -> None:
        """Write one tagged field: tag, size, value. The value is encoded first, because its size is needed."""
        src = self.src
        body = src.name("body")
        outer, self.write = self.write, f"{body}.append"
        src.line(f"{body} = []")
        self.value(field, value)
        self.flush()
        self.write = outer
        src.line(f"{body} = join({body})")
        src.line(f"{pieces} += (uvarint({field.tag}), uvarint(len({body})), {body})")

    # ---- fields

    def value(self, field: MessageField, value: str) -> None:
        src = self.src
        kind = field.kind
        if kind == "uuid":
            self.fixed(kind, f"{value}.int.to_bytes(16, 'big')")
        elif kind in FIXED_FORMATS:
            self.fixed(kind, value)
        elif kind == "struct":
            self.nested(field, value)
        elif kind == "array":
            self.array(field, value)
        elif kind == "records":
            self.records(field, value)
        else:
            data, length = src.name("b"), src.name("n")
            plain = f"{data} = {value}.encode()" if kind == "string" else f"{data} = {value}"
            if self.layout.is_nullable(field):
                src.line(f"if {value} is None: {data} = b''; {length} = -1")
                src.line(f"else: {plain}; {length} = len({data})")
            else:
                src.line(plain)
                src.line(f"{length} = len({data})")
            if kind == "string":
                limit = f"a string of {{{length}}} bytes; at most {STRING_BYTES_MAX} fit"
                src.line(f"if {length} > {STRING_BYTES_MAX}: raise FieldError(f'{limit}')")
            self.length(field, length)
            src.line(f"{self.write}({data})")

    def fixed(self, kind: str, value: str) -> None:
        self.formats += FIXED_FORMATS[kind]
        self.values.append(value)

    def nested(self, field: MessageField, value: str) -> None:
        src = self.src
        inner = src.name("o")
        src.line(f"{inner} = {value}")
        cls = cast("type[MessageStruct]", field.element)
        if not self.layout.is_nullable(field):
            self.struct(cls, inner)
            return
        self.flush()
        # In a tagged field Kafka's generator writes the marker as an unsigned varint, elsewhere as a signed byte.
        null = b"\x00" if self.layout.is_tagged(field) else b"\xff"
        with src.block(f"if {inner} is None:"):
            src.line(f"{self.write}({null!r})")
        with src.block("else:"):
            src.line(f"{self.write}(b'\\x01')")
            self.struct(cls, inner)
            self.flush()

    def array(self, field: MessageField, value: str) -> None:
        src = self.src
        element = field.element
        values, length = src.name("v"), src.name("n")
        src.line(f"{values} = {value}")
        if self.layout.is_nullable(field):
            src.line(f"if {values} is None: {values} = (); {length} = -1")
            src.line(f"else: {length} = len({values})")
        else:
            src.line(f"{length} = len({values})")
        self.length(field, length)
        if is_numbers(field):
            code = FIXED_FORMATS[cast("str", element)]
            small = src.constant(f"pack_{code}_array", array_packers(code))
            with src.block(f"if len({values}) < {SMALL_ARRAY}:"):
                src.line(f"{self.write}({small}[len({values})](*{values}))")
            with src.block("else:"):
                src.line(f"{self.write}(pack(f'>{{len({values})}}{code}', *{values}))")
            return
        item = src.name("o")
        with src.block(f"for {item} in {values}:"), src.at("[]"):
            if isinstance(element, str):
                self.value(element_field(field), item)
            else:
                self.struct(cast("type[MessageStruct]", element), item)
            self.flush()

    def records(self, field: MessageField, value: str) -> None:
        src = self.src
        buffers, length, buffer = src.name("v"), src.name("n"), src.name("b")
        src.line(f"{buffers}, {length} = record_buffers({value})")
        if not self.layout.is_nullable(field):
            src.line(f"if {length} < 0: raise FieldError('null is not allowed in version {self.version}')")
        self.length(field, length)
        with src.block(f"for {buffer} in {buffers}:"):
            if self.write == "w_0":
                src.line(f"if len({buffer}) >= {BULK_BYTES_MIN}: bulk.append(len(parts))")
            src.line(f"{self.write}({buffer})")

    # ---- bytes

    def length(self, field: MessageField, length: str) -> None:
        """Write the length, -1 for null, together with the preceding fixed-size fields."""
        src = self.src
        if not self.layout.is_compact(field):
            self.formats += "h" if field.kind == "string" else "i"
            self.values.append(length)
            self.flush()
            return
        src.line(f"{length} += 1")
        if not self.formats:
            src.line(f"{self.write}(UVARINTS[{length}] if {length} < 128 else uvarint({length}))")
            return
        short = f"{src.pack(self.formats + 'B')}({', '.join([*self.values, length])})"
        long = f"{src.pack(self.formats)}({', '.join(self.values)})"
        src.line(f"if {length} < 128: {self.write}({short})")
        src.line(f"else: {self.write}({long}); {self.write}(uvarint({length}))")
        self.formats = ""
        self.values = []

    def flush(self) -> None:
        """Write the fixed-size fields collected so far with one pack."""
        if self.formats:
            self.src.line(f"{self.write}({self.src.pack(self.formats)}({', '.join(self.values)}))")
        self.formats = ""
        self.values = []
