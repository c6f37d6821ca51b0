"""Codec: the options of a writer -> `SinkOptions`. The docstring of `spark/options.py` says how to add an option."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.core.reprs import repr_without
from barnabas.spark.delivery.visibility import VISIBLE_TIMEOUT_MS
from barnabas.spark.errors import OptionError
from barnabas.spark.given_options import GivenOptions
from barnabas.spark.options import DELIVERY_LEDGER, TRANSACTIONAL_ID_PREFIX, Delivery, OnDataLoss, QueryMode
from barnabas.spark.records.formats import RecordFormats
from barnabas.spark.records.options import parse_formats
from barnabas.spark.sink.topic_creation import TopicCreation, parse_topic_creation

TWO_PHASE_SETTING = "transaction.two.phase.commit.enable"


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """The options of exactly-once delivery. `two_phase` is None if it is used wherever the brokers offer it."""

    ledger: str = DELIVERY_LEDGER
    id_prefix: str = TRANSACTIONAL_ID_PREFIX
    two_phase: bool | None = None
    accept_loss: bool = False
    checkpoint: str | None = None
    visible_timeout_ms: int = VISIBLE_TIMEOUT_MS
    """How long a commit waits until its rows are visible."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The parsed options of a writer. `exactly_once` is None for at-least-once delivery."""

    client: Mapping[str, str]
    topic: str | None = None
    include_headers: bool = True
    exactly_once: ExactlyOnce | None = None
    formats: RecordFormats = field(default_factory=RecordFormats)
    creation: TopicCreation | None = None
    """How topics are created that do not exist; None: the writer creates none."""
    visible_timeout_ms: int = 0
    """How long an at-least-once write waits until its rows are visible."""

    __repr__ = repr_without("client")


def parse_sink_options(options: Mapping[str, str], mode: QueryMode = QueryMode.BATCH) -> SinkOptions:
    """Parse the options of the writer of a batch or streaming query. Raises OptionError. Options of Spark itself (path,
    checkpointLocation, ...) are ignored, but for the checkpoint's place.
    """
    given = GivenOptions(options)
    given.check_names("write")
    client = given.client_settings()
    delivery = given.get("delivery")
    if delivery is None:
        delivery = Delivery.EXACTLY_ONCE if mode is QueryMode.STREAM else Delivery.AT_LEAST_ONCE
    exactly_once = None
    if delivery is Delivery.EXACTLY_ONCE:
        exactly_once = _exactly_once(given, client)
    elif TWO_PHASE_SETTING in client:
        raise OptionError(f"kafka.{TWO_PHASE_SETTING} is for delivery=exactly-once, and delivery is at-least-once")
    return SinkOptions(
        client=client,
        topic=given.get("topic"),
        include_headers=given.get("includeHeaders") is not False,
        formats=parse_formats(given),
        exactly_once=exactly_once,
        creation=parse_topic_creation(options),
        visible_timeout_ms=_visible_timeout_ms(given, mode),
    )


def _visible_timeout_ms(given: GivenOptions, mode: QueryMode) -> int:
    """How long an at-least-once write waits. A micro-batch does not, unless the option is given: its query may write it
    again anyway, and the wait costs each one of them a request."""
    if mode is QueryMode.STREAM and given.text("delivery.visible.timeout.ms") is None:
        return 0
    timeout_ms: int = given.get("delivery.visible.timeout.ms")
    return timeout_ms


def _exactly_once(given: GivenOptions, client: dict[str, str]) -> ExactlyOnce:
    """The options of exactly-once delivery; removes from `client` what is not a setting of all producers."""
    client.pop(TWO_PHASE_SETTING, None)
    two_phase = given.get(f"kafka.{TWO_PHASE_SETTING}")
    if two_phase and "transaction.timeout.ms" in client:
        raise OptionError(f"kafka.transaction.timeout.ms has no effect with kafka.{TWO_PHASE_SETTING}=true; give one")
    for name, allowed in (("acks", ("all", "-1")), ("enable.idempotence", ("true",))):
        if name in client and client[name].strip().lower() not in allowed:
            raise OptionError(
                f"kafka.{name}={client[name]} is not possible with delivery=exactly-once; leave it out, or set"
                " delivery=at-least-once"
            )
    return ExactlyOnce(
        ledger=given.get("deliveryLedger"),
        id_prefix=given.get("transactionalIdPrefix"),
        two_phase=two_phase,
        accept_loss=given.get("failOnDataLoss") is not OnDataLoss.FAIL,
        checkpoint=given.text("checkpointLocation"),
        visible_timeout_ms=given.get("delivery.visible.timeout.ms"),
    )
