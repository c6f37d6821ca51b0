"""The schema language: constructors, defaults, repr and comparison of message classes."""

from __future__ import annotations

import copy
import pickle
from uuid import UUID

import pytest

from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.wire.messages.vote import PartitionData
from barnabas.protocol.wire.schema import Message, MessageStruct, array, int32, nested, replace, schema_of, string
from barnabas.protocol.wire.versions import NONE, Versions, versions


class Inner(MessageStruct):
    number: int = int32(default=7)


class Outer(Message, key=900, versions="1-3", flexible="2+"):
    name: str = string("1-2", ignorable=True)
    note: str | None = string("2+", null="2+", default=None, tag=4)
    inner: Inner = nested(Inner)
    numbers: list[int] = array(int32)
    inners: list[Inner] | None = array(Inner, null="3+", default=None)


def test_defaults_are_the_schemas_and_never_shared() -> None:
    one, two = Outer(), Outer()
    assert one == two
    assert one.name == ""
    assert one.note is None
    assert one.inner == Inner(number=7)
    assert one.inners is None
    one.numbers.append(1)
    one.inner.number = 8
    assert two.numbers == []
    assert two.inner.number == 7


def test_construction_takes_known_keywords_only() -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        Outer(nam="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Outer("x")  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Outer().other = 1  # type: ignore[attr-defined]


def test_the_class_knows_its_schema() -> None:
    schema = schema_of(Outer)
    assert (schema.name, schema.key, schema.versions, schema.flexible) == (
        "Outer",
        900,
        Versions(1, 3),
        Versions(2, 32767),
    )
    assert [field.name for field in schema.fields] == ["name", "note", "inner", "numbers", "inners"]
    note = schema.fields[1]
    assert (note.tag, note.tagged, note.null) == (4, Versions(2, 32767), Versions(2, 32767))


def test_repr_shows_what_differs_from_the_defaults() -> None:
    topic = MetadataRequestTopic(name="flights")
    assert repr(MetadataRequest(topics=[topic], allow_auto_topic_creation=False)) == (
        "MetadataRequest(topics=[MetadataRequestTopic(name='flights')], allow_auto_topic_creation=False)"
    )
    assert repr(Outer()) == "Outer()"


def test_repr_hides_secrets_and_shortens_bytes() -> None:
    assert "hunter2" not in repr(SaslAuthenticateRequest(auth_bytes=b"\0me\0hunter2"))


def test_values_are_compared_copied_and_pickled_by_content() -> None:
    value = Outer(name="x", inner=Inner(number=1), inners=[Inner()])
    assert copy.deepcopy(value) == value
    assert pickle.loads(pickle.dumps(value)) == value
    assert replace(value, name="y") == Outer(name="y", inner=Inner(number=1), inners=[Inner()])
    assert value != Outer()
    assert value != "value"
    with pytest.raises(TypeError, match="unhashable"):
        hash(value)


def test_uuid_fields_default_to_kafkas_zero() -> None:
    assert MetadataRequestTopic().topic_id == UUID(int=0)
    assert PartitionData().replica_directory_id == UUID(int=0)


@pytest.mark.parametrize("text", ["0+", "4-18", "3", "none"])
def test_version_ranges_print_as_they_are_written(text: str) -> None:
    assert str(versions(text)) == text


def test_version_ranges_contain_their_ends() -> None:
    assert 4 in versions("4-18")
    assert 18 in versions("4-18")
    assert 19 not in versions("4-18")
    assert 0 not in NONE
    with pytest.raises(ValueError, match="invalid literal"):
        versions("four")
