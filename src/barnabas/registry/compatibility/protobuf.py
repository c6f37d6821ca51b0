"""Machine: whether data written with one Protobuf schema can be read with another.

On the wire, a field is its number and its wire type, so names of fields may change and fields may be added and removed.
The type of a field may only change to a type of the same group; the groups are those of the interchangeable types in
the section "Updating a message type" of protobuf's documentation. Messages must keep their names, because records
identify their message.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb

from barnabas.registry.formats.protobuf.linker import Symbol, Symbols
from barnabas.registry.values import Incompatibility

_FIELD: Final = pb.FieldDescriptorProto
_MESSAGES: Final = (_FIELD.TYPE_MESSAGE, _FIELD.TYPE_GROUP)
_GROUPS: Final = {
    "a number": (
        _FIELD.TYPE_INT32, _FIELD.TYPE_INT64, _FIELD.TYPE_UINT32, _FIELD.TYPE_UINT64, _FIELD.TYPE_BOOL,
        _FIELD.TYPE_ENUM,
    ),
    "a zigzag number": (_FIELD.TYPE_SINT32, _FIELD.TYPE_SINT64),
    "text or bytes": (_FIELD.TYPE_STRING, _FIELD.TYPE_BYTES),
    "4 fixed bytes": (_FIELD.TYPE_FIXED32, _FIELD.TYPE_SFIXED32),
    "8 fixed bytes": (_FIELD.TYPE_FIXED64, _FIELD.TYPE_SFIXED64),
    "a float": (_FIELD.TYPE_FLOAT,),
    "a double": (_FIELD.TYPE_DOUBLE,),
}  # fmt: skip
_GROUP_OF: Final = {member: name for name, members in _GROUPS.items() for member in members}


def read_problems(
    new: pb.FileDescriptorProto, new_symbols: Symbols, old: pb.FileDescriptorProto, old_symbols: Symbols
) -> list[Incompatibility]:
    """All reasons why a reader with `new` cannot read data written with `old`."""
    comparison = _Comparison(old_symbols, new_symbols)
    if old.package != new.package:
        message = f"the package {old.package!r} became {new.package!r}"
        comparison.add("PACKAGE_CHANGED", "#/", message)
    comparison.messages(old.message_type, new.message_type, "#")
    return comparison.problems


class _Comparison:
    def __init__(self, old_symbols: Symbols, new_symbols: Symbols) -> None:
        self.problems: list[Incompatibility] = []
        self._old_symbols = old_symbols
        self._new_symbols = new_symbols
        self._imported: set[str] = set()

    def add(self, kind: str, path: str, message: str) -> None:
        self.problems.append(Incompatibility(kind, path, message))

    def messages(self, olds: Any, news: Any, path: str) -> None:
        by_name = {message.name: message for message in news}
        for old in olds:
            if old.options.map_entry:
                continue
            new = by_name.get(old.name)
            if new is None:
                self.add("MESSAGE_REMOVED", f"{path}/{old.name}", f"the message {old.name} was removed")
            else:
                self.message(old, new, f"{path}/{old.name}")

    def message(self, old: pb.DescriptorProto, new: pb.DescriptorProto, path: str) -> None:
        before = {field.number: field for field in old.field}
        after = {field.number: field for field in new.field}
        self._oneofs(old, new, path)
        for number in sorted({*before, *after}):
            place = f"{path}/{number}"
            one, other = before.get(number), after.get(number)
            if one is not None and other is not None:
                self._field(one, other, place)
            elif one is not None and one.label == _FIELD.LABEL_REQUIRED:
                self.add("REQUIRED_FIELD_REMOVED", place, f"the required field {one.name} was removed")
            elif other is not None and other.label == _FIELD.LABEL_REQUIRED:
                self.add("REQUIRED_FIELD_ADDED", place, f"the required field {other.name} was not written")
        self.messages(old.nested_type, new.nested_type, path)

    def _oneofs(self, old: pb.DescriptorProto, new: pb.DescriptorProto, path: str) -> None:
        """Add the violations by oneofs: fields that could be set together are now in one oneof, or a field of a oneof
        was removed, although other fields of that oneof remain.
        """
        was_in, is_in = _oneof_of(old), _oneof_of(new)
        numbers_before = {field.number for field in old.field}
        for name in sorted(set(is_in.values())):
            members = [number for number, oneof in is_in.items() if oneof == name and number in numbers_before]
            alone = [number for number in members if number not in was_in]
            groups = {was_in[number] for number in members if number in was_in}
            if len(alone) > 1:
                message = f"the fields {', '.join(map(str, alone))} could all be set, and now exclude each other"
                self.add("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{path}/{name}", message)
            elif len(alone) + len(groups) > 1:
                message = "fields that could be set together now exclude each other"
                self.add("FIELD_MOVED_TO_EXISTING_ONEOF", f"{path}/{name}", message)
        remaining = {field.number for field in new.field}
        surviving = {was_in[number] for number in was_in if number in is_in} | set(is_in.values())
        for number, name in sorted(was_in.items()):
            if number not in remaining and name in surviving:
                message = f"the alternative {number} of oneof {name} was removed"
                self.add("ONEOF_FIELD_REMOVED", f"{path}/{name}/{number}", message)

    def _field(self, old: pb.FieldDescriptorProto, new: pb.FieldDescriptorProto, path: str) -> None:
        self._type(old, new, path)
        repeated = _FIELD.LABEL_REPEATED
        if (old.label == repeated) == (new.label == repeated):
            return
        same_wire = new.type in _MESSAGES or _GROUP_OF.get(new.type) == "text or bytes"
        if not same_wire and _GROUP_OF.get(old.type) == _GROUP_OF.get(new.type):
            message = f"the number {new.name} became {'repeated' if new.label == repeated else 'single'}"
            self.add("FIELD_NUMERIC_LABEL_CHANGED", path, message)

    def _type(self, old: pb.FieldDescriptorProto, new: pb.FieldDescriptorProto, path: str) -> None:
        kinds = self._kind(old, self._old_symbols), self._kind(new, self._new_symbols)
        if kinds[0] != kinds[1]:
            self.add("FIELD_KIND_CHANGED", path, f"{new.name}: {kinds[0]} became {kinds[1]}")
        elif kinds[0] == "scalar":
            groups = _GROUP_OF[old.type], _GROUP_OF[new.type]
            if groups[0] != groups[1]:
                self.add("FIELD_SCALAR_KIND_CHANGED", path, f"{new.name}: {groups[0]} became {groups[1]}")
        elif kinds[0] == "map":
            one, other = self._old_symbols[old.type_name[1:]], self._new_symbols[new.type_name[1:]]
            for before, after in zip(one.descriptor.field, other.descriptor.field, strict=False):
                self._type(before, after, path)
        else:
            self._named(old.type_name[1:], new.type_name[1:], path)

    def _kind(self, field: pb.FieldDescriptorProto, symbols: Symbols) -> str:
        if field.type not in _MESSAGES:
            return "scalar"
        return "map" if symbols[field.type_name[1:]].is_map else "message"

    def _named(self, old_name: str, new_name: str, path: str) -> None:
        old, new = self._old_symbols[old_name], self._new_symbols[new_name]
        if _local(old_name, old) != _local(new_name, new):
            self.add("FIELD_NAMED_TYPE_CHANGED", path, f"the message {old_name} became {new_name}")
        elif not (old.own and new.own) and old_name not in self._imported:
            self._imported.add(old_name)
            self.message(old.descriptor, new.descriptor, f"{path}/{_local(new_name, new)}")


def _oneof_of(message: pb.DescriptorProto) -> dict[int, str]:
    """The oneofs that are written in the schema, by the numbers of their fields; without those of proto3's
    `optional`.
    """
    return {
        field.number: message.oneof_decl[field.oneof_index].name
        for field in message.field
        if field.HasField("oneof_index") and not field.proto3_optional
    }


def _local(full_name: str, symbol: Symbol) -> str:
    return full_name.removeprefix(f"{symbol.package}.") if symbol.package else full_name
