"""Value: what a dispatcher measures about the requests of one API, and the samples of it on the page of metrics.

The phases of a request have Kafka's names:

    RequestQueueTimeMs    the request waited for earlier requests of its connection
    LocalTimeMs           its steps on the event loop; a request that waits has several
    RemoteTimeMs          it waited: for replicas, for records, for a disk
    ResponseQueueTimeMs   a thread encoded its long response
    TotalTimeMs           all of it

Most requests finish in one step and never wait. Therefore a phase counts only the requests for which it is not zero;
the page adds the others as zeros. Kafka's ResponseSendTimeMs is not measured: a response is given to the operating
system at once, and what slow clients have not received is `barnabas_net_unsent_bytes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from barnabas.core.errors import ErrorCode
from barnabas.core.telemetry import Histogram, Metrics
from barnabas.core.telemetry.exposition import Exposition, label_text
from barnabas.core.telemetry.loop_watch import LoopHold, LoopWatch
from barnabas.core.telemetry.recent import QUANTILES, RecentCounts
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.schema import MessageStruct

_PREFIX: Final = "kafka_network_requestmetrics_"
_VERSIONS_MAX: Final = 64
_SCANNED_MAX: Final = 100
"""Entries of a response whose error codes are counted; a longer list is counted up to here."""
_BY_HANDLER: Final = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})
"""The handlers of these APIs count the errors of partitions themselves (`RequestContext.errors`)."""


class RequestMeter:
    """The measurements of one API on one listener of a node."""

    def __init__(self, key: ApiKey, metrics: Metrics, watch: LoopWatch) -> None:
        name = APIS[key].name
        self.requests = metrics.counter("barnabas_requests_total", "Requests answered.", api=name)
        self.bytes = metrics.counter("barnabas_request_bytes_total", "Bytes of requests.", api=name)
        self.total: Histogram = metrics.histogram(
            "barnabas_request_latency_ms", "From the arrival of a request to its answer, waiting included.", api=name
        )
        self.hold: LoopHold = watch.hold(name)
        self.queue = Histogram()
        self.remote = Histogram()
        self.encoding = Histogram()
        self.throttle = Histogram()
        self.from_followers = Histogram() if key == ApiKey.FETCH else None
        """The total time of the Fetch requests of other brokers, which are in `total`, too."""
        self.by_version = [0] * _VERSIONS_MAX
        self.errors: dict[int, int] = {}
        self.error_lists = () if key in _BY_HANDLER else _error_lists(key)
        self.has_error_code = "error_code" in _fields(APIS[key].response)
        self._name = "".join(word.capitalize() for word in key.name.split("_"))
        self._recent: dict[str, RecentCounts] = {}
        metrics.collectors.append(self.collect)

    def count_error(self, code: int) -> None:
        """Count one error code of a response."""
        if code:
            self.errors[code] = self.errors.get(code, 0) + 1

    def count_errors_in(self, response: Any) -> None:
        """Count the error codes in a response."""
        for outer, inner in self.error_lists:
            entries: Iterable[Any] = (getattr(response, outer) or ())[:_SCANNED_MAX]
            if inner is None:
                for entry in entries:
                    self.count_error(entry.error_code)
            else:
                for entry in entries:
                    for part in (getattr(entry, inner) or ())[:_SCANNED_MAX]:
                        self.count_error(part.error_code)

    def collect(self, page: Exposition) -> Iterator[None]:
        """Add the samples with Kafka's names to a page."""
        name = self._name
        versions = page.family(_PREFIX + "requests_total")
        for version, count in enumerate(self.by_version):
            if count:
                versions.add(count, label_text(request=name, version=str(version)))
        errors = page.family(_PREFIX + "errors_total")
        for code, count in sorted(self.errors.items()):
            errors.add(count, label_text(request=name, error=_error_name(code)))
        requests = self.total.count
        if not requests:
            return
        for phase, histogram, count in (
            ("totaltimems", self.total, requests),
            ("requestqueuetimems", self.queue, requests),
            ("localtimems", self.hold.histogram, self.hold.histogram.count),
            ("remotetimems", self.remote, requests),
            ("responsequeuetimems", self.encoding, requests),
            ("throttletimems", self.throttle, requests),
        ):
            self._phase(page, phase, name, histogram, count)
        if self.from_followers is not None:
            followers = self.from_followers
            self._phase(page, "totaltimems", name + "Follower", followers, followers.count)
            consumers = Histogram(self.total.bounds)
            consumers.counts = [a - b for a, b in zip(self.total.counts, followers.counts, strict=True)]
            self._phase(page, "totaltimems", name + "Consumer", consumers, consumers.count)
        yield

    def _phase(self, page: Exposition, phase: str, request: str, histogram: Histogram, count: int) -> None:
        """Add the quantiles and the number of values of a phase: those of `histogram`, and zeros up to `count`."""
        recent = self._recent.setdefault(phase + request, RecentCounts(histogram.bounds))
        counts = [count - histogram.count, *histogram.counts]
        family = page.family(_PREFIX + phase)
        for quantile, value in zip(QUANTILES, recent.quantiles(counts), strict=True):
            family.add(value, f'{{request="{request}",quantile="{quantile}"}}')
        page.family(_PREFIX + phase + "_count").add(count, f'{{request="{request}"}}')


def meter_of(key: ApiKey, metrics: Metrics, watch: LoopWatch) -> RequestMeter:
    """The meter of this API. The listeners of a controller and of a broker on one node share it."""
    name = f"requests {key.name}"
    found = metrics.attached.get(name)
    if found is None:
        found = metrics.attached[name] = RequestMeter(key, metrics, watch)
    assert isinstance(found, RequestMeter)
    return found


def _fields(message: type[MessageStruct]) -> dict[str, Any]:
    return {field.name: field for field in message.__schema__.fields}


def _error_lists(key: ApiKey) -> tuple[tuple[str, str | None], ...]:
    """The lists of a response whose entries have error codes: (list, None), or (list, list in each of its entries)."""
    found: list[tuple[str, str | None]] = []
    for name, outer in _fields(APIS[key].response).items():
        element = outer.element
        if outer.kind != "array" or not isinstance(element, type):
            continue
        inner_fields = _fields(element)
        if "error_code" in inner_fields:
            found.append((name, None))
        for inner_name, inner in inner_fields.items():
            part = inner.element
            if inner.kind == "array" and isinstance(part, type) and "error_code" in _fields(part):
                found.append((name, inner_name))
    return tuple(found)


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
