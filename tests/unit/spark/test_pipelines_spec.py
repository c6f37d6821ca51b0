"""The spec file of a pipeline: what is accepted, and what a message says."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.spark.pipelines.errors import SpecError
from barnabas.spark.pipelines.spec import PipelineSettings, parse_duration_ms, parse_spec

WHOLE = """
name: shop
storage: file:///var/shop%20one
catalog: spark_catalog
schema: sales
configuration:
  spark.sql.shuffle.partitions: "4"
  barnabas.pipelines.trigger: 500 ms
  barnabas.pipelines.refresh: 5 minutes
  barnabas.pipelines.group.id: g-{flow}
libraries:
  - glob:
      include: transformations/**
  - glob: {include: more.sql}
"""


def test_all_fields() -> None:
    spec = parse_spec(WHOLE)
    assert (spec.name, spec.storage, spec.catalog, spec.database) == (
        "shop",
        "file:///var/shop%20one",
        "spark_catalog",
        "sales",
    )
    assert spec.spark_configuration() == {"spark.sql.shuffle.partitions": "4"}
    assert spec.libraries == ("transformations/**/*", "more.sql")
    assert spec.settings == PipelineSettings(500, 300_000, "g-{flow}")
    assert spec.local_storage(Path("/x")) == Path("/var/shop one")


def test_storage_is_local_only_without_another_scheme() -> None:
    assert parse_spec("name: a\nstorage: state").local_storage(Path("/project")) == Path("/project/state")
    assert parse_spec("name: a\nstorage: s3://bucket/a").local_storage(Path("/project")) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nstorage: b\nlibrarys: []", "there is no field 'librarys': did you mean libraries?"),
        ("storage: b", "the field 'name' is missing"),
        ("name: a", "the field 'storage' is missing"),
        ("name: 7\nstorage: b", "the field 'name' must be a string, not a number"),
        ("name: [", "is not YAML"),
        ("- a", "has no fields"),
        ("name: a\nstorage: b\nconfiguration: {x.y: 4}", 'write x.y: "4" (it is a number)'),
        ("name: a\nstorage: b\nconfiguration: {x.y: true}", 'write x.y: "true" (it is a boolean)'),
        ("name: a\nstorage: b\nlibraries: [x.py]", "- glob: {include: transformations/**}"),
        ("name: a\nstorage: b\nlibraries: [{glob: {include: a/*/b.py}}]", "must be the path of a file, or of a folder"),
        (
            "name: a\nstorage: b\nconfiguration: {barnabas.pipelines.triger: 1s}",
            "there is no setting barnabas.pipelines.triger: did you mean barnabas.pipelines.trigger?",
        ),
        ("name: a\nstorage: b\nconfiguration: {barnabas.pipelines.trigger: soon}", "'soon' is not a duration"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "ms"), [("5", 5_000), ("250 ms", 250), ("1 second", 1_000), ("2m", 120_000), ("1 hour", 3_600_000)]
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms
