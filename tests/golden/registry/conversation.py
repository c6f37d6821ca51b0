"""Reads a scripted conversation with a registry, and says what was answered and what was written to its log.

A script is a list of steps, each a request, a line of dashes, and what happened:

    POST /subjects/s/versions {"schema": "\"int\""}
    ----
    200 {"version":1,"id":1,...}
    + {"keytype":"SCHEMA",...} {...}

Lines with `+` are records, `-` a record with a null value. `restart` makes a new registry that replays the log.
Guids are left out of the answers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence

from barnabas.client.single_writer.state import WriterFencedError
from barnabas.protocol.transport.http.messages import HttpRequest
from barnabas.registry.api.app import RegistryApp
from barnabas.registry.records import Record, decode_record, encode_record
from barnabas.registry.service import Registry


class MemoryTopic:
    """The records of a topic, and the log that is its writer."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes | None]] = []
        self.writer: MemoryLog | None = None


class MemoryLog:
    """A `SchemaLog` in memory; several logs may share a topic."""

    def __init__(self, topic: MemoryTopic) -> None:
        self._topic = topic
        self._position = 0
        self._is_writer = False

    async def catch_up(self, apply: Callable[[Record], None]) -> None:
        while self._position < len(self._topic.records):
            record = decode_record(*self._topic.records[self._position])
            self._position += 1
            if record is not None:
                apply(record)

    async def become_writer(self) -> bool:
        if self._is_writer:
            return False
        self._topic.writer = self
        self._is_writer = True
        return True

    async def append(self, records: Sequence[Record], apply: Callable[[Record], None]) -> None:
        if self._topic.writer is not self:
            self._is_writer = False
            raise WriterFencedError
        self._topic.records += [encode_record(record) for record in records]
        await self.catch_up(apply)


def replay_script(text: str) -> str:
    """Run the script, and return it with the actual responses in place of the expected ones."""
    return asyncio.run(_run(text))


async def _run(text: str) -> str:
    topic = MemoryTopic()
    app = RegistryApp(Registry(MemoryLog(topic)))
    steps = []
    for step in text.strip("\n").split("\n\n"):
        lines = step.split("\n")
        command = lines[: lines.index("----")] if "----" in lines else lines
        request = [line for line in command if not line.startswith("#")]
        before = len(topic.records)
        happened = []
        if request == ["restart"]:
            registry = Registry(MemoryLog(topic))
            await registry.refresh()
            app = RegistryApp(registry)
            happened.append(f"{len(topic.records)} records")
        else:
            head, _, body = "\n".join(request).partition(" {")
            method, target = head.split(" ")
            response = await app(HttpRequest(method, target, {}, f"{{{body}".encode() if body else b""))
            happened.append(f"{response.status} {_shown(response.body.decode())}")
        for key, value in topic.records[before:]:
            happened.append(f"+ {key.decode()} {value.decode()}" if value is not None else f"- {key.decode()}")
        steps.append("\n".join([*command, "----", *happened]))
    return "\n\n".join(steps) + "\n"


def _shown(body: str) -> str:
    try:
        document = json.loads(body)
    except ValueError:
        return body
    return json.dumps(_without_guids(document), separators=(",", ":"), ensure_ascii=False)


def _without_guids(document: object) -> object:
    if isinstance(document, list):
        return [_without_guids(one) for one in document]
    if isinstance(document, dict):
        return {key: value for key, value in document.items() if key != "guid"}
    return document
