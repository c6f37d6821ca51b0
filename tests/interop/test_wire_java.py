"""Byte equality with the Java client: every message, every version it has, generated values.

Our bytes are read by the generated `*Data` classes of kafka-clients and written back; both must agree to the byte. What
Java prints for a full value must name every field in Kafka's spelling next to the value we gave it, so that two fields
of the same type cannot have changed places. 4.3.1 knows the newest versions, 3.9.1 the oldest.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from barnabas.protocol.wire.codec import encode
from barnabas.protocol.wire.schema import Message, schema_of
from tests.interop.jars import KAFKA_VERSION, OLDER_VERSION, MavenMissingError
from tests.interop.java_echo import Case, Echo, Outcome, echo
from tests.property.wire_values import all_messages, full, messages, versions_of

EXAMPLES_PER_VERSION = 6
WITHOUT_DATA_SUFFIX = {"ConsumerProtocolSubscription", "ConsumerProtocolAssignment", "DefaultPrincipalData"}
DRAFTS = {("ReadShareGroupStateSummaryResponse", "3.9.1")}
"""Early access: the same version number has another layout there than in the release."""


def java_name(cls: type[Message]) -> str:
    name = schema_of(cls).name
    plain = name in WITHOUT_DATA_SUFFIX or not name.endswith(("Request", "Response", "Header"))
    return name if plain else f"{name}Data"


def generated_cases() -> list[Case]:
    cases = []
    for cls in all_messages():
        for version in versions_of(cls):
            values = _examples(messages(cls, version))
            cases.extend(Case(java_name(cls), version, encode(value, version)) for value in values)
    return cases


def _examples(strategy: st.SearchStrategy[Any]) -> list[Any]:
    """The first few values Hypothesis comes up with, the same every time."""
    found: list[Any] = []

    @settings(
        max_examples=EXAMPLES_PER_VERSION,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return found


def run(cases: list[Case], kafka_version: str) -> list[Echo]:
    try:
        return echo(cases, kafka_version)
    except MavenMissingError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return generated_cases()


@pytest.mark.parametrize(("kafka_version", "at_least"), [(KAFKA_VERSION, 3000), (OLDER_VERSION, 3000)])
def test_java_reads_our_bytes_and_writes_the_same(cases: list[Case], kafka_version: str, at_least: int) -> None:
    wrong = []
    equal = 0
    for case, answer in zip(cases, run(cases, kafka_version), strict=True):
        draft = (case.name.removesuffix("Data"), kafka_version) in DRAFTS
        if draft or answer.outcome is Outcome.NO_SUCH_VERSION:
            continue
        if answer.outcome is Outcome.ECHOED and answer.data == case.data:
            equal += 1
        else:
            wrong.append(
                f"{case.name} v{case.version}: ours {case.data.hex()}, Java {answer.outcome.name} {answer.data!r}"
            )
    assert wrong == []
    assert equal >= at_least


def test_every_field_arrives_under_its_own_name() -> None:
    classes = [cls for cls in all_messages() if schema_of(cls).name != "RequestHeader"]
    samples = [(cls, full(cls, schema_of(cls).versions.high, 1)) for cls in classes]
    cases = [
        Case(java_name(cls), schema_of(cls).versions.high, encode(value, schema_of(cls).versions.high))
        for cls, value in samples
    ]
    checked = 0
    for (cls, value), answer in zip(samples, run(cases, "4.3.1"), strict=True):
        if answer.outcome is Outcome.NO_SUCH_VERSION:
            continue
        assert answer.outcome is Outcome.ECHOED, (schema_of(cls).name, answer.data)
        for name, shown in _shown_values(value, schema_of(cls).versions.high):
            assert f"{name}={shown}" in _plain(answer.shown), (schema_of(cls).name, name, answer.shown)
            checked += 1
    assert checked > 500


def _shown_values(value: Any, version: int) -> list[tuple[str, str]]:
    """Field names squeezed to lower-case letters, and how Java prints their values; scalars only, all the way down."""
    found = []
    for field in schema_of(value).fields:
        content = getattr(value, field.name)
        if version not in field.versions:
            continue
        name = field.name.replace("_", "")
        if field.kind == "array" and not isinstance(field.element, str):
            for item in content:
                found += _shown_values(item, version)
        elif field.kind == "struct":
            found += _shown_values(content, version)
        elif field.kind == "string":
            found.append((name, f"'{content}'"))
        elif field.kind.startswith(("int", "uint")):
            found.append((name, str(content)))
    return found


def _plain(shown: str) -> str:
    """Java's rendering with the names in front of `=` in lower case."""
    return re.sub(r"(\w+)=", lambda match: f"{match.group(1).lower()}=", shown)
