"""Codec: the language in which message classes are written. A class is the schema of all versions of its message.

    class FetchTopic(MessageStruct):
        topic: str = string("0-12", ignorable=True)
        topic_id: UUID = uuid("13+", ignorable=True)
        partitions: list[FetchPartition] = array(FetchPartition)

    class FetchRequest(Request, key=1, versions="4-18", flexible="12+"):
        cluster_id: str | None = string("12+", null="12+", default=None, tag=0, ignorable=True)
        max_wait_ms: int = int32()
        topics: list[FetchTopic] = array(FetchTopic)

The function before the parentheses is the type on the wire. `array` and `nested` take the type of their elements or of
the struct as the first argument. All other arguments are optional:

    "13+"            the versions that carry the field (default: "0+")
    null="12+"       the versions in which the field may be None
    default=         the value if none is given, or if the version does not carry the field
    tag=0            the field is encoded as tagged field 0 (in the versions of `tagged`, by default in all versions
                     that carry the field), and only if it differs from its default
    ignorable=True   a version that cannot carry the field leaves out its value; without `ignorable`, encoding a value
                     other than the default in such a version is an error
    flexible="none"  the versions in which the field's length is a varint, if they differ from the message's flexible
                     versions
    sensitive=True   repr() hides the value, so that it is never logged

Type checkers see slotted dataclasses whose fields are optional keyword arguments. At run time the metaclass moves the
fields from the class body into `__schema__`. Constructors and codecs are compiled on first use, so imports are cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar, cast, dataclass_transform, overload
from uuid import UUID

from barnabas.core.buffers import Buffer
from barnabas.protocol.wire.versions import NONE, Versions, versions

T = TypeVar("T")
S = TypeVar("S", bound="MessageStruct")

Records = Buffer | Sequence[Buffer]
"""The value of a `records` field to encode: one buffer, or several that are sent in order without being joined.
A decoded value is a memoryview of the frame."""

NO_UUID: Final = UUID(int=0)
_FRESH: Final = object()


class MessageField:
    """One field of a struct: the arguments of its line in the class body."""

    __slots__ = (
        "default",
        "element",
        "flexible",
        "ignorable",
        "kind",
        "name",
        "null",
        "sensitive",
        "tag",
        "tagged",
        "versions",
    )

    def __init__(
        self,
        kind: str,
        carried: str,
        default: object,
        *,
        element: str | type[MessageStruct] | None = None,
        null: str | None = None,
        tag: int | None = None,
        tagged: str | None = None,
        ignorable: bool = False,
        flexible: str | None = None,
        sensitive: bool = False,
    ) -> None:
        self.name = ""
        self.kind = kind  # "int32", "string", ..., "array", "struct"
        self.element = element  # for an array: a kind or a MessageStruct; for a struct: the MessageStruct
        self.versions = versions(carried)
        self.default = default
        self.null = versions(null) if null else NONE
        self.tag = tag
        self.tagged = NONE if tag is None else versions(tagged or carried)
        self.ignorable = ignorable
        self.flexible = versions(flexible) if flexible else None
        self.sensitive = sensitive

    @property
    def fresh(self) -> bool:
        """True if every message needs a new default object, because the object is mutable."""
        return self.kind in ("array", "struct") and self.default is not None

    def new_default(self) -> object:
        if not self.fresh:
            return self.default
        return [] if self.kind == "array" else cast("type[MessageStruct]", self.element)()


class MessageSchema:
    """The schema of a message class. `codec.py` stores the compiled codecs in `encoders` and `decoders`, by version."""

    __slots__ = ("decoders", "encoders", "fields", "flexible", "key", "name", "unstable", "versions")

    def __init__(
        self,
        name: str,
        fields: tuple[MessageField, ...],
        key: int,
        carried: Versions,
        flexible: Versions,
        unstable: bool,
    ) -> None:
        self.name = name
        self.fields = fields
        self.key = key
        self.versions = carried
        self.flexible = flexible
        self.unstable = unstable
        self.encoders: dict[int, Any] = {}
        self.decoders: dict[int, Any] = {}


@dataclass_transform(kw_only_default=True)
class StructMeta(type):
    """Turns the fields of a class body into slots, and stores them as the schema of the class."""

    __schema__: MessageSchema

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        body: dict[str, Any],
        *,
        key: int = -1,
        versions: str = "0+",
        flexible: str = "none",
        unstable: bool = False,
    ) -> StructMeta:
        fields = []
        for attribute in [attribute for attribute, value in body.items() if isinstance(value, MessageField)]:
            field: MessageField = body.pop(attribute)
            field.name = attribute
            fields.append(field)
        body["__slots__"] = tuple(field.name for field in fields)
        body["__schema__"] = MessageSchema(name, tuple(fields), key, _parse(versions), _parse(flexible), unstable)
        return super().__new__(mcs, name, bases, body)

    def __init__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **options: object) -> None:
        super().__init__(name, bases, body)


_parse = versions  # StructMeta.__new__ has a parameter of that name


class MessageStruct(metaclass=StructMeta):
    """A group of fields in a message. Mutable, compared by value, constructed with keyword arguments."""

    __schema__: ClassVar[MessageSchema]
    __hash__ = None  # type: ignore[assignment]  # mutable, so not hashable

    def __init__(self, **values: object) -> None:
        cls = type(self)
        cls.__init__ = _compile_constructor(cls)  # type: ignore[method-assign]  # compiled on first use
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.__schema__.fields)

    def __repr__(self) -> str:
        shown = []
        for field in self.__schema__.fields:
            value = getattr(self, field.name)
            if value != field.new_default():
                shown.append(f"{field.name}={'<hidden>' if field.sensitive else _short(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"


class Message(MessageStruct):
    """A struct that is encoded by itself, in one of several versions."""


class Request(Message):
    """A request; `key` is the number of the API."""


class Response(Message):
    """The response to the request with the same `key` and version."""


def schema_of(message: type[MessageStruct] | MessageStruct) -> MessageSchema:
    """The schema of a class, or of the class of a message."""
    return message.__schema__


def replace(message: S, **changes: object) -> S:
    """A shallow copy with some fields changed."""
    values = {field.name: getattr(message, field.name) for field in message.__schema__.fields}
    return type(message)(**{**values, **changes})


def _short(value: object) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)) and len(value) > 32:
        return f"<{len(value)} bytes>"
    return repr(value)


def _compile_constructor(cls: type[MessageStruct]) -> Callable[..., None]:
    """Generate `def __init__(self, *, a=0, b=_FRESH): ...` from the class's fields, as `dataclasses` would.

    `_FRESH` marks a default that each instance must create anew: an empty list or a nested struct.
    """
    scope: dict[str, Any] = {"_FRESH": _FRESH}
    parameters, lines = [], []
    for index, field in enumerate(cls.__schema__.fields):
        value = field.name
        if field.fresh:
            scope[f"_new{index}"] = list if field.kind == "array" else field.element
            parameters.append(f"{field.name}=_FRESH")
            value = f"_new{index}() if {field.name} is _FRESH else {field.name}"
        else:
            scope[f"_default{index}"] = field.default
            parameters.append(f"{field.name}=_default{index}")
        lines.append(f"    self.{field.name} = {value}")
    head = f"def __init__(self, {'*, ' if parameters else ''}{', '.join(parameters)}):"
    exec("\n".join([head, *(lines or ["    pass"])]), scope)  # built from our own field names, never from input
    constructor: Callable[..., None] = scope["__init__"]
    constructor.__qualname__ = f"{cls.__qualname__}.__init__"
    return constructor


class _Scalar(Generic[T]):
    """A wire type of a fixed size, which is never null."""

    def __init__(self, kind: str, default: T) -> None:
        self.kind = kind
        self.default = default

    def __call__(
        self,
        carried: str = "0+",
        *,
        default: T | None = None,
        tag: int | None = None,
        tagged: str | None = None,
        ignorable: bool = False,
    ) -> T:
        value = self.default if default is None else default
        return cast("T", MessageField(self.kind, carried, value, tag=tag, tagged=tagged, ignorable=ignorable))


class _Text(Generic[T]):
    """A wire type with a length. The value may be None in the versions of `null`."""

    def __init__(self, kind: str, default: T) -> None:
        self.kind = kind
        self.default = default

    @overload
    def __call__(
        self,
        carried: str = ...,
        *,
        null: None = None,
        default: T = ...,
        tag: int | None = ...,
        tagged: str | None = ...,
        ignorable: bool = ...,
        flexible: str | None = ...,
        sensitive: bool = ...,
    ) -> T: ...

    @overload
    def __call__(
        self,
        carried: str = ...,
        *,
        null: str,
        default: T | None = ...,
        tag: int | None = ...,
        tagged: str | None = ...,
        ignorable: bool = ...,
        flexible: str | None = ...,
        sensitive: bool = ...,
    ) -> T | None: ...

    def __call__(self, carried: str = "0+", *, default: object = _FRESH, **options: Any) -> Any:
        return MessageField(self.kind, carried, self.default if default is _FRESH else default, **options)


int8 = _Scalar[int]("int8", 0)
int16 = _Scalar[int]("int16", 0)
int32 = _Scalar[int]("int32", 0)
int64 = _Scalar[int]("int64", 0)
uint16 = _Scalar[int]("uint16", 0)
uint32 = _Scalar[int]("uint32", 0)
float64 = _Scalar[float]("float64", 0.0)
boolean = _Scalar[bool]("bool", False)
uuid = _Scalar[UUID]("uuid", NO_UUID)
string = _Text[str]("string", "")
binary = _Text[bytes]("bytes", b"")


def records(carried: str = "0+", *, null: str | None = None, tag: int | None = None, ignorable: bool = False) -> Any:
    """Record batches, as opaque bytes. None by default, as in Kafka."""
    return MessageField("records", carried, None, null=null, tag=tag, ignorable=ignorable)


@overload
def array(
    of: Callable[..., T],
    carried: str = ...,
    *,
    null: None = None,
    tag: int | None = ...,
    tagged: str | None = ...,
    ignorable: bool = ...,
) -> list[T]: ...


@overload
def array(
    of: Callable[..., T],
    carried: str = ...,
    *,
    null: str,
    default: list[T] | None = ...,
    tag: int | None = ...,
    tagged: str | None = ...,
    ignorable: bool = ...,
) -> list[T] | None: ...


def array(of: Any, carried: str = "0+", *, default: Any = (), **options: Any) -> Any:
    """A list of a wire type (`array(int32)`) or of a struct (`array(FetchTopic)`). The default is empty, or None."""
    element: Any = of if isinstance(of, StructMeta) else of.kind
    return MessageField("array", carried, None if default is None else (), element=element, **options)


@overload
def nested(
    of: type[S], carried: str = ..., *, null: None = None, tag: int | None = ..., ignorable: bool = ...
) -> S: ...


@overload
def nested(
    of: type[S],
    carried: str = ...,
    *,
    null: str,
    default: None = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
) -> S | None: ...


def nested(of: type[MessageStruct], carried: str = "0+", *, default: Any = (), **options: Any) -> Any:
    """A struct inside another. The default is a new struct, or None."""
    return MessageField("struct", carried, None if default is None else (), element=of, **options)
