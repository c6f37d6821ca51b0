"""Records become requests with keys, and requests are sent until the web service accepts or refuses them."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import pyarrow as pa
import pytest

from barnabas.spark.connectors.http.errors import HttpUnavailableError
from barnabas.spark.connectors.http.options import HttpOptions, parse_http_options
from barnabas.spark.connectors.http.requests import BadText, RecordText, Request, requests_of
from barnabas.spark.connectors.http.retrying import Accepted, Again, Answer, Refused, judge_answer
from barnabas.spark.connectors.http.writer import Sent, send_rows
from barnabas.spark.connectors.sinking import failures
from barnabas.spark.errors import OptionError, SinkError
from barnabas.spark.sink.tasks import Attempt

URL = "http://127.0.0.1:1/hook"


def options(**given: str) -> HttpOptions:
    return parse_http_options({"http.url": URL, **{name.replace("_", "."): text for name, text in given.items()}})


def batching(size: int = 3, **given: str) -> HttpOptions:
    return options(batching_enabled="true", batch_max_size=str(size), **given)


def records(*places: tuple[str, int], text: bytes = b"{}") -> list[RecordText]:
    return [RecordText(text, source, offset) for source, offset in places]


# -- requests ----------------------------------------------------------------------------------------------------------


def test_without_batching_each_record_is_a_request_with_its_place_as_key() -> None:
    made = list(requests_of(records(("t-0", 7), ("t-0", 8)), options()))
    assert made == [Request(b"{}", "t-0-7", 0, 1), Request(b"{}", "t-0-8", 1, 2)]


def test_requests_end_at_multiples_of_the_batch_size_so_that_they_are_the_same_when_repeated() -> None:
    whole = records(*(("t-0", offset) for offset in range(4, 11)))
    assert [request.key for request in made(whole)] == ["t-0-4-5", "t-0-6-8", "t-0-9-10"]
    assert [request.key for request in made(whole[2:])] == ["t-0-6-8", "t-0-9-10"]


def made(texts: list[RecordText]) -> list[Request]:
    found = list(requests_of(texts, batching()))
    assert all(isinstance(request, Request) for request in found)
    return [request for request in found if isinstance(request, Request)]


def test_records_of_two_partitions_are_in_two_requests() -> None:
    assert [request.key for request in made(records(("t-0", 0), ("t-1", 1)))] == ["t-0-0-0", "t-1-1-1"]


def test_a_request_has_no_more_bytes_than_the_limit() -> None:
    texts = records(*(("t-0", offset) for offset in range(6)), text=b'"0123456789"')
    found = list(requests_of(texts, batching(100, batch_bytes_max="30")))
    assert [(request.first, request.end) for request in found if isinstance(request, Request)] == [
        (0, 2),
        (2, 4),
        (4, 6),
    ]


def test_a_text_that_is_no_json_is_not_put_into_an_array() -> None:
    texts = [*records(("t-0", 0)), RecordText(b"plain", "t-0", 1), *records(("t-0", 2))]
    first, bad, last = requests_of(texts, batching())
    assert (first, last) == (Request(b"[{}]", "t-0-0-0", 0, 1), Request(b"[{}]", "t-0-2-2", 2, 3))
    assert isinstance(bad, BadText)
    assert bad.index == 1
    assert "is not JSON" in bad.reason


def test_lines_end_with_one_line_feed_each() -> None:
    texts = [RecordText(b"a", "t-0", 0), RecordText(b"b\n", "t-0", 1)]
    (request,) = requests_of(texts, batching(batch_format="lines"))
    assert isinstance(request, Request)
    assert request.body == b"a\nb\n"


# -- retrying ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "sent", "verdict"),
    [
        (Answer(204, ""), 1, Accepted()),
        (Answer(503, ""), 1, Again(1000)),
        (Answer(500, ""), 3, Again(4000)),
        (
            Answer(None, "refused"),
            20,
            Refused(f"{URL} did not answer: refused; the request was sent 20 times (max.retries)", False),
        ),
        (Answer(429, "", "7"), 1, Again(7000)),
        (Answer(429, "", formatdate(100, usegmt=True)), 1, Again(90_000)),
        (Answer(503, "", "soon"), 1, Again(1000)),
        (Answer(503, "", "999999999999"), 1, Again(900_000)),
        (Answer(400, "no"), 1, Refused(f"{URL} answered 400: no", True)),
        (Answer(501, "no"), 1, Refused(f"{URL} answered 501: no", True)),
        (
            Answer(302, "x", None, "http://b/"),
            1,
            Refused(f"{URL} answered 302; it redirects to http://b/: set http.url to that address: x", True),
        ),
    ],
)  # fmt: skip
def test_an_answer_decides_whether_a_request_is_sent_again(answer: Answer, sent: int, verdict: object) -> None:
    assert judge_answer(answer, sent, options(), now_ms=10_000, jitter=0.0) == verdict


def test_the_time_between_repetitions_has_a_limit() -> None:
    given = options(max_retries="1000")
    assert judge_answer(Answer(500, ""), 900, given, 0, 0.0) == Again(60_000)


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "http.url must be given"),
        ({"http.url": "ftp://x"}, "must be an address such as"),
        ({"http.url": "http://u:p@x/"}, "http.url has a user"),
        ({"http.url": URL, "http.heders.additional": "a:b"}, "did you mean http.headers.additional"),
        ({"http.url": URL, "batch.prefix": "["}, "batch.prefix is not supported: set batch.format"),
        ({"http.url": URL, "http.headers.additional": "nocolon"}, "must be name:value"),
        ({"http.url": URL, "http.headers.additional": "a:b\nc"}, "does not allow"),
        ({"http.url": URL, "http.headers.authorization": "x"}, "has no effect"),
    ],
)
def test_options_that_cannot_work_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_http_options(given)


def test_a_user_and_a_password_become_a_header() -> None:
    given = options(http_authorization_type="basic", http_username="u", http_password="p")
    assert ("Authorization", "Basic dTpw") in given.headers


# -- sending -----------------------------------------------------------------------------------------------------------


class WebService:
    """A web service that answers with a script of statuses, then with 200. `accepted` has (key, body) of each."""

    def __init__(self) -> None:
        self.script: list[tuple[int, dict[str, str]] | None] = []
        self.accepted: list[tuple[str, bytes]] = []
        self.headers: list[dict[str, str]] = []
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                service.headers.append(dict(self.headers.items()))
                step = service.script.pop(0) if service.script else (200, {})
                if step is None:
                    self.close_connection = True
                    return
                status, headers = step
                if status == 200:
                    service.accepted.append((self.headers["Idempotency-Key"], body))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def service() -> Iterator[WebService]:
    running = WebService()
    yield running
    running.close()


def batch(count: int = 3) -> Any:
    return pa.RecordBatch.from_pydict(
        {
            "topic": ["t"] * count,
            "partition": [0] * count,
            "offset": list(range(count)),
            "value": [json.dumps({"n": n}).encode() for n in range(count)],
        }
    )


ATTEMPT = Attempt("query", "run", 4, 2, 0)


def sending(service: WebService, **given: str) -> HttpOptions:
    return parse_http_options(
        {
            "http.url": service.url,
            "retry.backoff.ms": "1",
            **{name.replace("_", "."): text for name, text in given.items()},
        }
    )


def test_records_arrive_in_their_order_through_failures_of_all_kinds(service: WebService) -> None:
    service.script = [(503, {}), None, (429, {"Retry-After": "0"}), (500, {"Connection": "close"})]
    assert send_rows(iter([batch()]), sending(service), ATTEMPT) == Sent(3, 3, 0)
    assert service.accepted == [(f"t-0-{n}", b'{"n": %d}' % n) for n in range(3)]


def test_a_json_array_has_the_records_of_a_request(service: WebService) -> None:
    given = sending(service, batching_enabled="true", http_headers_additional="X-Tenant: a, X-B:c")
    send_rows(iter([batch()]), given, ATTEMPT)
    ((key, body),) = service.accepted
    assert (key, json.loads(body)) == ("t-0-0-2", [{"n": 0}, {"n": 1}, {"n": 2}])
    assert service.headers[0]["X-Tenant"] == "a"
    assert service.headers[0]["Content-Type"] == "application/json"


def test_a_request_that_stays_refused_stops_the_task(service: WebService) -> None:
    service.script = [(422, {})]
    with pytest.raises(SinkError, match=r"answered 422: ok\. Set errors\.tolerance=all"):
        send_rows(iter([batch()]), sending(service), ATTEMPT)


def test_with_tolerance_the_other_records_are_sent(service: WebService) -> None:
    service.script = [(200, {}), (422, {})]
    assert send_rows(iter([batch()]), sending(service, errors_tolerance="all"), ATTEMPT) == Sent(3, 3, 1)
    assert [key for key, _ in service.accepted] == ["t-0-0", "t-0-2"]


def test_columns_are_sent_as_an_object_with_a_key_of_the_task(service: WebService) -> None:
    rows = pa.RecordBatch.from_pydict({"id": [1, 2], "name": ["a", None]})
    send_rows(iter([rows, rows]), sending(service), ATTEMPT)
    assert service.accepted == [
        ("query-4-2-0", b'{"id":1,"name":"a"}'),
        ("query-4-2-1", b'{"id":2}'),
        ("query-4-2-2", b'{"id":1,"name":"a"}'),
        ("query-4-2-3", b'{"id":2}'),
    ]


def test_records_are_decoded_and_transformed_before_they_are_sent(service: WebService) -> None:
    given = {
        "value_converter": "JsonConverter",
        "value_converter_schemas_enable": "false",
        "transforms": "name",
        "transforms_name_type": "ReplaceField$Value",
        "transforms_name_renames": "n:number",
        "errors_tolerance": "all",
    }
    whole = batch()
    values = pa.array([b'{"n": 0}', b"no JSON", b'{"n": 2}'], pa.binary())
    whole = whole.set_column(whole.schema.get_field_index("value"), "value", values)
    assert send_rows(iter([whole]), sending(service, **given), ATTEMPT) == Sent(2, 2, 1)
    assert [(key, json.loads(body)) for key, body in service.accepted] == [
        ("t-0-0", {"number": 0}),
        ("t-0-2", {"number": 2}),
    ]


def test_an_outage_stops_the_task_whatever_is_tolerated(service: WebService) -> None:
    """The records are not at fault: with errors.tolerance=all a topic would be emptied into nothing."""
    service.script = [(503, {})] * 2
    with pytest.raises(HttpUnavailableError, match=r"answered 503.*sent 2 times \(max\.retries\)"):
        send_rows(iter([batch()]), sending(service, errors_tolerance="all", max_retries="1"), ATTEMPT)


def test_a_transform_changes_neither_the_key_of_a_request_nor_a_dead_letter(
    service: WebService, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters: list[dict[str, Any]] = []

    class Letters:
        def write(self, topic: str, table: Any) -> None:
            letters.extend(table.to_pylist())

    monkeypatch.setattr(failures, "shared", lambda *_: Letters())
    given = {
        "value_converter": "JsonConverter",
        "value_converter_schemas_enable": "false",
        "transforms": "route,mask",
        "transforms_route_type": "RegexRouter",
        "transforms_route_regex": ".*",
        "transforms_route_replacement": "all",
        "transforms_mask_type": "MaskField$Value",
        "transforms_mask_fields": "n",
        "errors_tolerance": "all",
        "errors_deadletterqueue_topic_name": "letters",
        "kafka_bootstrap_servers": "localhost:1",
    }
    one, two = batch(2), batch(2)
    two = two.set_column(0, "topic", pa.array(["u", "u"]))
    service.script = [(200, {}), (422, {})]
    assert send_rows(iter([one, two]), sending(service, **given), ATTEMPT) == Sent(4, 4, 1)
    assert [key for key, _ in service.accepted] == ["t-0-0", "u-0-0", "u-0-1"]
    assert [letter["value"] for letter in letters] == [b'{"n": 1}']
    headers = {header["key"]: header["value"] for header in letters[0]["headers"]}
    assert headers["__connect.errors.topic"] == b"t"
