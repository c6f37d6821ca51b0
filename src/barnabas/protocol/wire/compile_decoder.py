"""Codec: generates, for one message class and version, the Python function that decodes the message.

The generated function (Fetch, version 13, abridged):

    def decode(buf, pos, end):
        left = 65536 + (end - pos) // 8
        o = new(FetchRequest)
        o.max_wait_ms, o.min_bytes, ..., n_1 = unpack_iiibiiB(buf, pos)            # fixed fields and one length
        if n_1 > 127: n_1, pos = read_uvarint(buf, pos - 1)                        # most lengths fit in one byte
        n_1 -= 1
        if n_1 < 0: raise FieldError("null is not allowed in version 13")
        if n_1 > (end - pos) // 18: raise FieldError(...)                          # before memory is allocated
        ...

A length is rejected if the rest of the input could not hold that many of the smallest possible element. Objects take
more memory than their bytes, so the number of structs in one message is limited, too: `left` starts at 65,536 plus one
for every 8 bytes of input. No valid message reaches this limit; it keeps the memory for a hostile message proportional
to the size of the message.

A request is decoded by a server, in one step that nothing interrupts, and every element costs its handler more than its
decoder. Therefore all elements of all arrays of a request are counted, numbers, strings and unknown tagged fields
included, and there may be REQUEST_ELEMENTS_MAX of them. A follower's fetch of 20,000 topics has 40,000 elements, and a
reassignment of 20,000 partitions with three replicas each has 80,000.
"""

from __future__ import annotations

import struct
from typing import cast

from barnabas.protocol.wire.layout import (
    FIXED_FORMATS,
    STRING_BYTES_MAX,
    VersionLayout,
    element_field,
    has_records,
    is_numbers,
)
from barnabas.protocol.wire.primitives import SMALL_ARRAY, FieldError, array_unpackers, read_uvarint, skip_tags, uuid_of
from barnabas.protocol.wire.schema import MessageField, MessageStruct, Request
from barnabas.protocol.wire.source import Compiled, Source

STRUCTS_ALWAYS_ALLOWED = 65_536
REQUEST_ELEMENTS_MAX = 100_000


def compile_decoder(cls: type[MessageStruct], version: int) -> Compiled:
    """The function `decode(buf, pos, end) -> (message, pos)` for this version.

    `buf` is `bytes`, or, for a message with records, any buffer.
    """
    return _Decoder(cls, version).compile()


class _Decoder:
    def __init__(self, cls: type[MessageStruct], version: int) -> None:
        self.cls = cls
        self.version = version
        self.layout = VersionLayout(cls, version)
        self.views = has_records(cls)  # a message with records may be large: decode it without copying the buffer
        self.is_request = issubclass(cls, Request) or cls.__name__ == "RequestHeader"
        self.src = src = Source("def decode(buf, pos, end):")
        src.scope.update(
            new=object.__new__,
            FieldError=FieldError,
            read_uvarint=read_uvarint,
            skip_tags=skip_tags,
            uuid_of=uuid_of,
            unpack_from=struct.unpack_from,
            memoryview=memoryview,
        )
        self.formats = ""  # format codes of the fixed-size fields that the next `flush` reads together
        self.targets: list[str] = []  # the variables for these fields
        self.afterwards: list[tuple[str, str]] = []  # (line, field path): the lines that follow that `flush`

    def compile(self) -> Compiled:
        src = self.src
        if self.is_request:
            src.line(f"left = {REQUEST_ELEMENTS_MAX}")
        else:
            src.line(f"left = {STRUCTS_ALWAYS_ALLOWED} + (end - pos) // 8")
        src.line("view = memoryview(buf)" if self.views else "pass")
        self.struct(self.cls, "o")
        self.flush()
        src.line("return o, pos")
        return src.compile("decode", f"<decoder of {self.cls.__name__} v{self.version}>")

    # ---- structs

    def struct(self, cls: type[MessageStruct], target: str) -> None:
        """Add lines to the generated function that read a struct into the new variable `target`."""
        src = self.src
        src.line(f"{target} = new({src.constant(cls.__name__, cls)})")
        for field in cls.__schema__.fields:
            with src.at(f".{field.name}"):
                if not self.layout.is_carried(field) or self.layout.is_tagged(field):
                    self.default(field, f"{target}.{field.name}")
                else:
                    self.value(field, f"{target}.{field.name}")
        if self.layout.flexible:
            self.tags(self.layout.tagged(cls), target)

    def default(self, field: MessageField, target: str) -> None:
        src = self.src
        if field.kind == "array" and field.fresh:
            src.line(f"{target} = []")
        elif field.kind == "struct" and field.fresh:
            inner = src.name("o")
            cls = cast("type[MessageStruct]", field.element)
            src.line(f"{target} = {inner} = new({src.constant(cls.__name__, cls)})")
            for nested in cls.__schema__.fields:
                self.default(nested, f"{inner}.{nested.name}")
        elif field.default is None or isinstance(field.default, (bool, int, str, bytes)):
            src.line(f"{target} = {field.default!r}")
        else:
            src.line(f"{target} = {src.constant('default', field.default)}")

    def tags(self, tagged: list[MessageField], target: str) -> None:
        """Read the tagged fields at the end of a struct. Most structs have none."""
        src = self.src
        count = self.uvarint("n")
        if not tagged:
            with src.block(f"if {count}:"):
                self.count_elements(count)
                src.line(f"pos = skip_tags(buf, pos, end, {count})")
            return
        with src.block(f"if {count}:"):
            self.count_elements(count)
            tag, last, size, stop = src.name("tag"), src.name("last"), src.name("size"), src.name("stop")
            src.line(f"{last} = -1")
            with src.block(f"for _ in range({count}):"):
                self.short_uvarint(tag)
                src.line(f"if {tag} <= {last}: raise FieldError(f'tagged field {{{tag}}} comes after {{{last}}}')")
                src.line(f"{last} = {tag}")
                self.short_uvarint(size)
                src.line(f"{stop} = pos + {size}")
                self.check(f"{stop} > end", f"a tagged field claims {{{size}}} bytes of the {{end - pos}} left")
                for index, field in enumerate(tagged):
                    with src.block(f"{'elif' if index else 'if'} {tag} == {field.tag}:"), src.at(f".{field.name}"):
                        self.value(field, f"{target}.{field.name}")
                        self.flush()
                        self.check(f"pos != {stop}", "the tagged field is longer or shorter than it says")
                src.line(f"else: pos = {stop}")

    # ---- fields

    def value(self, field: MessageField, target: str) -> None:
        kind = field.kind
        if kind in FIXED_FORMATS:
            self.fixed(kind, target)
        elif kind == "struct":
            self.nested(field, target)
        else:
            length = self.length(field)
            if self.layout.is_nullable(field):
                with self.src.block(f"if {length} == -1:"):
                    self.src.line(f"{target} = None")
                with self.src.block("else:"):
                    self.content(field, target, length)
            else:
                self.content(field, target, length)

    def fixed(self, kind: str, target: str) -> None:
        self.formats += FIXED_FORMATS[kind]
        if kind == "uuid":
            raw = self.src.name("u")
            self.targets.append(raw)
            self.later(f"{target} = uuid_of({raw})")
        else:
            self.targets.append(target)

    def nested(self, field: MessageField, target: str) -> None:
        src = self.src
        cls = cast("type[MessageStruct]", field.element)
        inner = src.name("o")
        if not self.layout.is_nullable(field):
            self.struct(cls, inner)
            src.line(f"{target} = {inner}")
            return
        marker = src.name("n")
        self.formats += "b"
        self.targets.append(marker)
        self.flush()
        # In a tagged field the marker is an unsigned varint, elsewhere a signed byte (see the encoder). Tagged fields
        # that an earlier version of Barnabas has written have the byte.
        null = f"{marker} <= 0" if self.layout.is_tagged(field) else f"{marker} < 0"
        with src.block(f"if {null}:"):
            src.line(f"{target} = None")
        with src.block("else:"):
            self.struct(cls, inner)
            self.flush()
            src.line(f"{target} = {inner}")

    def length(self, field: MessageField) -> str:
        """Add lines to the generated function that read the length of a value into a new variable, and return the
        variable's name. The length is -1 for null, otherwise not negative.
        """
        src = self.src
        null = f"null is not allowed in version {self.version}"
        if self.layout.is_compact(field):
            length = self.uvarint("n", STRING_BYTES_MAX + 1 if field.kind == "string" else None)
            src.line(f"{length} -= 1")
            if not self.layout.is_nullable(field):
                self.check(f"{length} < 0", null)
            return length
        length = src.name("n")
        self.formats += "h" if field.kind == "string" else "i"
        self.targets.append(length)
        self.flush()
        with src.block(f"if {length} < 0:"):
            if self.layout.is_nullable(field):
                self.check(f"{length} < -1", f"the length {{{length}}} is negative")
            else:
                src.line(f"raise FieldError({null!r} if {length} == -1 else f'the length {{{length}}} is negative')")
        return length

    def content(self, field: MessageField, target: str, length: str) -> None:
        src = self.src
        if field.kind == "array":
            self.array(field, target, length)
            return
        stop = src.name("e")
        src.line(f"{stop} = pos + {length}")
        self.check(f"{stop} > end", f"a length of {{{length}}} bytes, but {{end - pos}} are left")
        if field.kind == "string":
            src.line(
                f"{target} = str(buf[pos:{stop}], 'utf-8')" if self.views else f"{target} = buf[pos:{stop}].decode()"
            )
        elif field.kind == "bytes":
            src.line(f"{target} = bytes(buf[pos:{stop}])" if self.views else f"{target} = buf[pos:{stop}]")
        else:
            src.line(f"{target} = view[pos:{stop}]")
        src.line(f"pos = {stop}")

    def array(self, field: MessageField, target: str, length: str) -> None:
        src = self.src
        element = field.element
        smallest = self.layout.smallest_element(field)
        too_many = (
            f"{length} > (end - pos) // {smallest}",
            f"an array of {{{length}}} elements, but only {{end - pos}} bytes are left",
        )
        if is_numbers(field):
            self.check(*too_many)
            self.count_elements(length)
            self.numbers(target, length, FIXED_FORMATS[cast("str", element)])
            src.line(f"pos += {length} * {smallest}")
            return
        values, index = src.name("v"), src.name("i")
        src.line(f"{target} = {values} = []")
        with src.block(f"if {length}:"):
            self.check(*too_many)
            if self.is_request:
                self.count_elements(length)
            elif not isinstance(element, str):
                src.line(f"left -= {length}")
                self.check("left < 0", "the message has more elements than its size warrants")
            with src.block(f"for {index} in range({length}):"), src.at(f"[{index}]"):
                item = src.name("o")
                if isinstance(element, str):
                    self.value(element_field(field), item)
                else:
                    self.struct(cast("type[MessageStruct]", element), item)
                self.flush()
                src.line(f"{values}.append({item})")

    def count_elements(self, count: str) -> None:
        """Add lines to the generated function that count elements of a request."""
        if self.is_request:
            self.src.line(f"left -= {count}")
            self.check("left < 0", f"a request has at most {REQUEST_ELEMENTS_MAX} elements; send several requests")

    def numbers(self, target: str, length: str, code: str) -> None:
        """Add lines to the generated function that read an array of `length` numbers into `target` with one unpack.
        `code` is the format code of one number.
        """
        src = self.src
        small = src.constant(f"unpack_{code}_array", array_unpackers(code))
        with src.block(f"if {length} < {SMALL_ARRAY}:"):
            src.line(f"{target} = [*{small}[{length}](buf, pos)]")
        with src.block("else:"):
            src.line(f"{target} = [*unpack_from(f'>{{{length}}}{code}', buf, pos)]")

    # ---- bytes

    def uvarint(self, prefix: str, at_most: int | None = None) -> str:
        """Add lines to the generated function that read a varint into a new variable, and return the variable's name.

        The first byte is read together with the preceding fixed-size fields, and further bytes separately. The
        generated function raises FieldError for a varint above `at_most`.
        """
        name = self.src.name(prefix)
        self.formats += "B"
        self.targets.append(name)
        self.flush()
        with self.src.block(f"if {name} > 127:"):
            self.src.line(f"{name}, pos = read_uvarint(buf, pos - 1)")
            if at_most is not None:
                self.check(f"{name} > {at_most}", f"a string of {{{name} - 1}} bytes; at most {at_most - 1} fit")
        return name

    def short_uvarint(self, name: str) -> None:
        """Add lines to the generated function that read a varint, which mostly has one byte, into the variable `name`.
        No fixed-size fields may be pending."""
        assert not self.formats
        self.src.line(f"{name} = buf[pos]")
        self.src.line(f"if {name} < 128: pos += 1")
        self.src.line(f"else: {name}, pos = read_uvarint(buf, pos)")

    def later(self, line: str) -> None:
        """Add a line that follows the code of the next `flush` and belongs to the current field."""
        self.afterwards.append((line, self.src.path))

    def flush(self) -> None:
        """Read the fixed-size fields collected so far with one unpack."""
        src = self.src
        if self.formats == "B":
            src.line(f"{self.targets[0]} = buf[pos]")
            src.line("pos += 1")
        elif self.formats:
            comma = "," if len(self.targets) == 1 else ""
            src.line(f"{', '.join(self.targets)}{comma} = {src.unpack(self.formats)}(buf, pos)")
            src.line(f"pos += {struct.calcsize('>' + self.formats)}")
        for line, path in self.afterwards:
            src.line(line, path)
        self.formats = ""
        self.targets = []
        self.afterwards = []

    def check(self, wrong: str, message: str) -> None:
        self.src.line(f"if {wrong}: raise FieldError(f'{message}')")
