"""Records, the state that they build, and registries that share a topic."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from barnabas.client.errors import SerializationError
from barnabas.core.decision import Decision
from barnabas.protocol.transport.http.messages import HttpRequest
from barnabas.registry.api.app import RegistryApp
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.records import (
    ClearSubjectRecord,
    Config,
    DeleteSubjectRecord,
    ModeRecord,
    Record,
    SchemaRecord,
    SchemaRecordError,
    SchemaTombstone,
    SubjectConfigRecord,
    decode_record,
    encode_record,
)
from barnabas.registry.schema_cache import SchemaCache
from barnabas.registry.schemas import SchemaRegistration, decide_register
from barnabas.registry.serde.wire_format import decode_indexes, encode_indexes, frame, unframe
from barnabas.registry.service import Registry
from barnabas.registry.state import RegistryState
from barnabas.registry.subjects import Subject, is_valid, parse_subject, qualify
from barnabas.registry.values import Compatibility, Mode, Reference, RegisteredSchema, Schema, SchemaType
from tests.golden.registry.conversation import MemoryLog, MemoryTopic

SCHEMA = Schema('"int"', references=(Reference("n", "other", 2),), metadata={"properties": {"a": "b"}})
REGISTERED = RegisteredSchema("s", 3, 7, SCHEMA)
RECORDS: list[Record] = [
    SchemaRecord(REGISTERED),
    SchemaRecord(replace(REGISTERED, deleted=True, schema=Schema("x", SchemaType.PROTOBUF, rule_set={"r": [1]}))),
    SchemaTombstone("s", 3),
    DeleteSubjectRecord("s", 3),
    ClearSubjectRecord(":.c:s"),
    SubjectConfigRecord(None, Config(Compatibility.FULL)),
    SubjectConfigRecord("s", Config(None, "alias", True, "major", {"overrideMetadata": {"x": 1}})),
    SubjectConfigRecord("s", None),
    ModeRecord("s", Mode.IMPORT),
    ModeRecord(None, None),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_records_round_trip(record: Record) -> None:
    assert decode_record(*encode_record(record)) == record


def test_unknown_records_are_skipped_and_invalid_ones_raise() -> None:
    assert decode_record(b'{"keytype":"NOOP","magic":0}', None) is None
    assert decode_record(b'{"keytype":"CONTEXT","context":".x"}', b"{}") is None
    written = b'{"subject":"s","version":1,"id":5,"md5":"xx","schema":"\\"int\\"","deleted":false,"ts":1,"offset":2}'
    found = decode_record(b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', written)
    assert found == SchemaRecord(RegisteredSchema("s", 1, 5, Schema('"int"')))
    for key, value in (
        (b"x", None),
        (b"[]", None),
        (b'{"keytype":"SCHEMA"}', b"{}"),
        (b'{"keytype":"MODE"}', b'{"mode":"?"}'),
    ):
        with pytest.raises(SchemaRecordError):
            decode_record(key, value)


def test_apply_is_idempotent_and_ids_live_while_a_version_uses_them() -> None:
    state = RegistryState()
    schema = Schema('"int"')
    for record in (
        SchemaRecord(RegisteredSchema("a", 1, 1, schema)),
        SchemaRecord(RegisteredSchema("b", 1, 1, schema)),
        SchemaRecord(RegisteredSchema("a", 1, 1, schema)),
    ):
        state.apply(record)
    assert state.users(".", 1) == [("a", 1), ("b", 1)]
    state.apply(SchemaTombstone("a", 1))
    state.apply(SchemaTombstone("a", 1))
    assert state.schema(".", 1) == schema
    state.apply(DeleteSubjectRecord("b", 1))
    assert state.users(".", 1) == []
    assert state.schema(".", 1) == schema
    state.apply(ClearSubjectRecord("b"))
    assert state.schema(".", 1) is None
    assert state.subjects == {}
    assert state.next_id(".") == 2


def test_subjects_are_parsed_with_their_context() -> None:
    assert parse_subject(":.c:s:t") == Subject(".c", "s:t")
    assert parse_subject(":.c:") == Subject(".c", "")
    assert [qualify("s", ".c"), qualify(":.d:s", ".c"), qualify("s", "."), qualify(":.:s", ".")] == [
        ":.c:s", ":.d:s", "s", "s",
    ]  # fmt: skip
    assert [is_valid(name) for name in ("s", ":.c:s", "", ":.c:", "__GLOBAL", ":x:s", "a\nb")] == [
        True, True, False, False, False, False, False,
    ]  # fmt: skip


def register(subject: str, text: str) -> SchemaRegistration:
    return SchemaRegistration(subject, Schema(text))


def test_registries_that_share_a_topic_never_assign_an_id_twice() -> None:
    async def main() -> None:
        topic = MemoryTopic()
        registries = [Registry(MemoryLog(topic)) for _ in range(3)]

        async def one(number: int) -> RegisteredSchema:
            request = register(f"s{number}", f'{{"type":"fixed","name":"F","size":{number}}}')
            return await registries[number % 3].change(
                lambda state, schema_cache: decide_register(state, schema_cache, request)
            )

        found = await asyncio.gather(*[one(number) for number in range(30)])
        assert sorted(registered.id for registered in found) == list(range(1, 31))
        for registry in registries:
            await registry.refresh()
        assert [registry.state.subjects for registry in registries[1:]] == [registries[0].state.subjects] * 2

    asyncio.run(main())


def test_a_rejection_is_decided_from_the_end_of_the_topic() -> None:
    """The first registry is the writer, and has not read that another registry has changed the level."""

    async def main() -> None:
        topic = MemoryTopic()
        one, other = Registry(MemoryLog(topic)), Registry(MemoryLog(topic))
        first, second = register("s", '"int"'), register("s", '"string"')
        await one.change(lambda state, schema_cache: decide_register(state, schema_cache, first))
        with pytest.raises(RegistryError):
            await one.change(lambda state, schema_cache: decide_register(state, schema_cache, second))
        change = SubjectConfigRecord("s", Config(Compatibility.NONE))
        await other.change(lambda state, schema_cache: Decision(None, [change]))
        assert (await one.change(lambda state, schema_cache: decide_register(state, schema_cache, second))).version == 2

    asyncio.run(main())


async def _call(app: RegistryApp, method: str, target: str, body: bytes = b"") -> tuple[int, dict[str, object]]:
    response = await app(HttpRequest(method, target, {}, body))
    return response.status, json.loads(response.body)


def test_largest_id_and_version_of_a_subject_are_read_from_the_end_of_the_topic() -> None:
    """Another registry has registered schemas since this registry read the topic."""

    async def main() -> None:
        topic = MemoryTopic()
        one, other = RegistryApp(Registry(MemoryLog(topic))), RegistryApp(Registry(MemoryLog(topic)))
        body = b'{"schema": "\\"int\\""}'
        await _call(one, "POST", "/subjects/s/versions", body)
        assert (await _call(one, "GET", "/schemas/ids/1?fetchMaxId=true"))[1]["maxId"] == 1
        await _call(other, "POST", "/subjects/t/versions", body)
        await _call(other, "POST", "/subjects/u/versions", b'{"schema": "\\"long\\""}')
        assert (await _call(one, "GET", "/schemas/ids/1?fetchMaxId=true"))[1]["maxId"] == 2
        await _call(other, "POST", "/subjects/v/versions", body)
        found = (await _call(one, "GET", "/schemas/ids/1?subject=v"))[1]
        assert (found["subject"], found["version"]) == ("v", 1)

    asyncio.run(main())


@pytest.mark.parametrize(
    "document",
    [
        {"schema": json.dumps({"type": "record", "name": "R", "doc": "\u20ac" * 400_000, "fields": []})},
        {"schema": json.dumps({"type": "record", "name": "R", "doc": '"' * 490_000, "fields": []})},
        {"schema": '"int"', "metadata": {"properties": {"a": "x" * 1_000_000}}},
    ],
    ids=["text", "escaped", "metadata"],
)
def test_schema_is_measured_in_bytes_of_its_record(document: dict[str, object]) -> None:
    async def main() -> None:
        topic = MemoryTopic()
        app = RegistryApp(Registry(MemoryLog(topic)))
        body = json.dumps(document, ensure_ascii=False).encode()
        status, answer = await _call(app, "POST", "/subjects/s/versions", body)
        assert (status, answer["error_code"]) == (422, Code.SCHEMA_TOO_LARGE)
        assert topic.records == []

    asyncio.run(main())


@pytest.mark.parametrize(
    "body",
    [
        b'{"schema": "\\"\\ud800\\""}',
        b'{"schema": "{\\"type\\": \\"record\\", \\"name\\": \\"R\\", \\"doc\\": \\"\\\\ud800\\", \\"fields\\": []}"}',
        b'{"schema": "\\"int\\"", "metadata": {"properties": {"a": "\\ud800"}}}',
        b'{"schema": "\\"int\\"", "schemaType": "\\ud800"}',
    ],
    ids=["text", "escape in the text", "metadata", "type"],
)
def test_half_of_a_surrogate_pair_is_rejected(body: bytes) -> None:
    async def main() -> None:
        topic = MemoryTopic()
        app = RegistryApp(Registry(MemoryLog(topic)))
        status, answer = await _call(app, "POST", "/subjects/s/versions", body)
        assert (status, answer["error_code"]) == (422, Code.UNPROCESSABLE)
        assert topic.records == []

    asyncio.run(main())


def test_schema_stored_by_another_registry_is_recognised() -> None:
    state = RegistryState()
    state.apply(SchemaRecord(RegisteredSchema("s", 1, 9, Schema('{ "type" : "int" }'))))
    decision = decide_register(state, SchemaCache(state), register("s", '"int"'))
    assert (decision.response.id, decision.records) == (9, ())


def test_frames_have_confluents_wire_format() -> None:
    assert frame(258, b"xyz") == b"\x00\x00\x00\x01\x02xyz"
    schema_id, payload = unframe(b"\x00\x00\x00\x01\x02xyz")
    assert (schema_id, bytes(payload)) == (258, b"xyz")
    for data in (b"", b"\x00\x00", b"{not framed}"):
        with pytest.raises(SerializationError):
            unframe(data)
    assert encode_indexes([0]) == b"\x00"
    assert encode_indexes([1, 0]) == b"\x04\x02\x00"
    for indexes in ([0], [1], [0, 0], [3, 200, 70_000]):
        found, rest = decode_indexes(memoryview(encode_indexes(indexes) + b"rest"))
        assert (found, bytes(rest)) == (indexes, b"rest")
    for bad in (b"", b"\x04\x02", b"\xff\xff\xff\xff\xff\xff", b"\x01"):
        with pytest.raises(SerializationError):
            decode_indexes(memoryview(bad))
