"""Scripted conversations with the controller.

A script is a text file of comments (`#`) and steps. A step is a line that begins with `>`; what follows it up to the
next step is what came out: the response, the records, and what the image says.

    > CreateTopics 7 {"topics": [{"name": "a", "num_partitions": 2, "replication_factor": 1}]}
    CreateTopicsResponse(...)
      TopicRecord(...)

Steps: `broker N [rack] [dirs]` registers and unfences one, with so many log directories; `crashed N` registers it as a
new process after an unclean end, `restarted N EPOCH` after an orderly one in that epoch, `beat N` unfences that;
`<Api> <version> <json>` is any request of the controller, in which `$id:t` is topic t's id and `$dir:N.2` broker N's
second directory; `fence N`; `image` shows topics, brokers and configs; `lose <Api> ...` decides, applies and then fails
to commit.
"""

from __future__ import annotations

import importlib
import json
import random
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from barnabas.core.decision import Decision
from barnabas.core.errors import error_code
from barnabas.core.ids import uuid_from_text, uuid_to_text
from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from barnabas.protocol.wire.messages.create_topics import CreateTopicsResponse
from barnabas.protocol.wire.schema import Message, MessageStruct, schema_of
from barnabas.server.metadata.config_source import ConfigValueSource
from barnabas.server.metadata.controller.brokers import decide_fence_broker
from barnabas.server.metadata.controller.controller import Controller
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.features import DEFAULT_LEVELS, ELR_VERSION, SUPPORTED_FEATURES, bootstrap_records
from barnabas.server.metadata.image.cluster import ClusterImage, MetadataProvenance, PartitionImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.codec import decode_record, encode_record
from barnabas.server.metadata.snapshot import image_records
from tests.configs import controller_config

_DIRECTORIES = 1_000_000
"""Ids from here on are those of log directories; below are processes, far above are topics."""


class Conversation:
    def __init__(self) -> None:
        self.settings = controller_config(node_id=1, num_partitions=1, default_replication_factor=1)
        self.controller = Controller(self.settings, ClusterImage(cluster_id="c"))
        self.rng = random.Random(0)
        self.names: dict[UUID, str] = {}
        self.processes = 0
        # Eligible leader replicas have a script of their own, which switches them on.
        levels = {name: level for name, level in DEFAULT_LEVELS.items() if name != ELR_VERSION}
        self.controller.apply(self.controller.image, bootstrap_records(levels))

    def run(self, step: str) -> Iterator[str]:
        word, _, rest = step.partition(" ")
        if word == "broker":
            yield from self.broker(*rest.split())
        elif word == "crashed":
            yield from self.new_process(int(rest))
        elif word == "restarted":
            number, epoch = rest.split()
            yield from self.new_process(int(number), int(epoch))
        elif word == "beat":
            yield from self.beat(int(rest))
        elif word == "fence":
            decision = decide_fence_broker(self.controller.image, int(rest), self.context(0))
            yield from self.take(decision)
        elif word == "image":
            yield from self.show_image()
        elif word == "lose":
            before = self.controller.image
            for line in self.request(rest):
                assert line
            self.controller.image = before
            yield "(not committed)"
        else:
            yield from self.request(step)

    def context(self, version: int) -> DecideContext:
        return DecideContext(now_ms=1_000_000, rng=self.rng, settings=self.settings, version=version)

    def request(self, text: str) -> Iterator[str]:
        api, version, body = text.split(" ", 2)
        module = importlib.import_module("barnabas.protocol.wire.messages." + snake(api))
        request = build(getattr(module, api + "Request"), json.loads(self.with_ids(body)))
        assert isinstance(request, Message)
        decision = self.controller.decide(self.controller.image, request, self.context(int(version)))
        response = decision.response
        if isinstance(response, CreateTopicsResponse):
            for topic in response.topics:  # only the configs that say something
                topic.configs = [c for c in topic.configs or [] if c.config_source != ConfigValueSource.DEFAULT_CONFIG]
        yield self.readable(repr(response))
        yield from self.take(decision)

    def broker(self, broker_id: str, rack: str | None = None, dirs: str = "1") -> Iterator[str]:
        number = int(broker_id)
        registered = self.register(number, UUID(int=number), rack, int(dirs))
        self.controller.apply(self.controller.image, registered.records)
        yield from self.beat(number)

    def new_process(self, number: int, previous_epoch: int = -1) -> Iterator[str]:
        """`previous_epoch`: under which the last one shut down; after a crash, nobody knows."""
        self.processes += 1
        registered = self.register(number, UUID(int=1000 * self.processes + number), None, previous=previous_epoch)
        yield repr(registered.response)
        yield from self.take(registered)

    def register(
        self, number: int, incarnation_id: UUID, rack: str | None, dirs: int = 1, previous: int = -1
    ) -> Decision[MetadataRecord, Any]:
        registration = BrokerRegistrationRequest(
            broker_id=number,
            cluster_id="c",
            incarnation_id=incarnation_id,
            listeners=[Listener(name="PLAINTEXT", host=f"host{number}", port=9092)],
            features=[
                Feature(name=name, min_supported_version=levels.min_level, max_supported_version=levels.max_level)
                for name, levels in SUPPORTED_FEATURES.items()
            ],
            rack=rack,
            log_dirs=[directory(number, index + 1) for index in range(dirs)],
            previous_broker_epoch=previous,
        )
        return self.controller.decide(self.controller.image, registration, self.context(4))

    def beat(self, number: int) -> Iterator[str]:
        epoch = self.controller.image.brokers.brokers[number].epoch
        beat = BrokerHeartbeatRequest(broker_id=number, broker_epoch=epoch, current_metadata_offset=epoch)
        decision = self.controller.decide(self.controller.image, beat, self.context(1))
        yield repr(decision.response)
        yield from self.take(decision)

    def take(self, decision: Decision[MetadataRecord, Any]) -> Iterator[str]:
        """Apply the records, as they come back from bytes; check that the image survives a snapshot."""
        read = [decode_record(encode_record(record)) for record in decision.records]
        assert read == list(decision.records)
        self.controller.apply(self.controller.image, read)
        for topic in self.controller.image.topics:
            self.names[topic.topic_id] = topic.name
        fresh = ClusterDelta(ClusterImage(cluster_id="c"))
        for record in image_records(self.controller.image):
            fresh.apply(decode_record(encode_record(record)))
        assert fresh.finish(MetadataProvenance()).same_state_as(self.controller.image)
        for record in decision.records:
            yield "  " + self.readable(repr(record))

    def show_image(self) -> Iterator[str]:
        image = self.controller.image
        for broker in image.brokers:
            state = "fenced" if broker.fenced else "shutting down" if broker.in_controlled_shutdown else "active"
            yield f"broker {broker.broker_id} rack={broker.rack} {state}"
        for name in image.topics.names():
            topic = image.topics.by_name[name]
            for index, p in enumerate(topic.partitions):
                yield (
                    f"{name}-{index} leader={p.leader} replicas={list(p.replicas)} isr={list(p.isr)} "
                    f"leader_epoch={p.leader_epoch} partition_epoch={p.partition_epoch}{eligible(p)}"
                )
        for resource, configs in sorted(image.configs.by_resource.items()):
            yield f"configs of {resource.type} {resource.name!r}: {dict(sorted(configs.items()))}"

    def with_ids(self, text: str) -> str:
        """`$id:name` stands for the id of a topic."""
        ids = {name: uuid_to_text(topic_id) for topic_id, name in self.names.items()}
        text = re.sub(r"\$id:([\w.-]+)", lambda match: ids[match[1]], text)
        return re.sub(r"\$dir:(\d+)\.(\d+)", lambda match: uuid_to_text(directory(int(match[1]), int(match[2]))), text)

    def readable(self, text: str) -> str:
        """Topic ids by name, error codes by name: what a reader wants to see."""

        def topic(match: re.Match[str]) -> str:
            value = UUID(match[1])
            name = self.names.get(value)
            if value.int in range(_DIRECTORIES, 100 * _DIRECTORIES):
                return f"<directory {value.int // _DIRECTORIES} of {value.int % _DIRECTORIES}>"
            return f"<id of {name}>" if name else "<id>"

        text = re.sub(r"UUID\('([0-9a-f-]{36})'\)", topic, text)
        text = re.sub(
            r"error_code=(?:<ErrorCode\.(\w+): -?\d+>|(-?\d+))",
            lambda match: f"error_code={match[1] or error_code(int(match[2])).name}",
            text,
        )
        return re.sub(r"<(\w+)\.(\w+): -?\d+>", r"\2", text)


def directory(broker: int, index: int) -> UUID:
    return UUID(int=_DIRECTORIES * index + broker)


def eligible(partition: PartitionImage) -> str:
    """What is seldom set."""
    said = {"elr": partition.elr, "last_known_elr": partition.last_known_elr, "adding": partition.adding_replicas}
    said["removing"] = partition.removing_replicas
    return "".join(f" {name}={list(brokers)}" for name, brokers in said.items() if brokers)


def build(kind: type[MessageStruct], values: dict[str, Any]) -> MessageStruct:
    fields = {field.name: field for field in schema_of(kind).fields}
    given: dict[str, Any] = {}
    for name, value in values.items():
        field = fields[name]
        element: Any = field.element if field.kind == "array" else field.kind
        if isinstance(value, list):
            given[name] = [build_item(element, item) for item in value]
        elif element == "uuid":
            given[name] = uuid_from_text(value)
        else:
            given[name] = value
    return kind(**given)


def build_item(element: Any, item: Any) -> Any:
    if isinstance(element, type):
        return build(element, item)
    return uuid_from_text(item) if element == "uuid" else item


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def play(script: str) -> str:
    """The script with what really comes out."""
    conversation = Conversation()
    lines: list[str] = []
    for line in script.splitlines():
        if line.startswith(">"):
            lines.append(line)
            lines += conversation.run(line[1:].strip())
            lines.append("")
        elif line.startswith("#"):
            lines.append(line)
    return "\n".join(lines).rstrip() + "\n"
