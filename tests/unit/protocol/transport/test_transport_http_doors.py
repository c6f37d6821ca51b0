"""The head of an HTTP request decides whether it is handled; slots belong to addresses."""

from __future__ import annotations

from socket import gethostname

import pytest

from barnabas.protocol.transport.http.doors import HttpDoors, OpenListenerError, require_login
from barnabas.protocol.transport.http.slots import HttpSlots

JSON = {"content-type": "application/json", "content-length": "2"}


def status(doors: HttpDoors, method: str, headers: dict[str, str]) -> int:
    refusal = doors.refusal(method, headers)
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:8083", 200),
        ("[::1]:8083", 200),
        ("10.1.2.3", 200),
        ("localhost:8083", 200),
        (f"{gethostname()}:1", 200),
        ("Connect.example.com:8083", 200),
        ("", 200),
        ("evil.example:8083", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example", 403),
    ],
)
def test_hosts_are_addresses_and_names_of_the_server(host: str, expected: int) -> None:
    assert status(HttpDoors(["connect.example.com"]), "GET", {"host": host}) == expected
    assert status(HttpDoors(None), "GET", {"host": host}) == 200  # a login protects


@pytest.mark.parametrize(
    ("method", "headers", "expected"),
    [
        ("POST", {"origin": "http://evil.example"}, 403),
        ("POST", {"origin": "null"}, 403),
        ("POST", {"origin": "http://127.0.0.1:8083"}, 200),
        ("POST", {"origin": "http://127.0.0.1:8084"}, 403),
        ("GET", {"origin": "http://evil.example"}, 403),
        ("DELETE", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ("POST", {"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate"}, 403),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 200),
        ("POST", {"sec-fetch-site": "same-origin"}, 200),
    ],
)
@pytest.mark.parametrize("names", [(), None])
def test_pages_of_other_sites_are_refused(
    method: str, headers: dict[str, str], expected: int, names: tuple[str, ...] | None
) -> None:
    assert status(HttpDoors(names), method, {"host": "127.0.0.1:8083", **JSON, **headers}) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (JSON, 200),
        ({"content-type": "application/vnd.schemaregistry.v1+json; charset=utf-8", "content-length": "9"}, 200),
        ({"content-type": "text/plain", "content-length": "9"}, 415),
        ({"content-type": "application/x-www-form-urlencoded", "transfer-encoding": "chunked"}, 415),
        ({"content-type": "multipart/form-data; boundary=x", "content-length": "9"}, 415),
        ({"content-length": "9"}, 200),
        ({"content-length": "9", "sec-fetch-site": "same-origin"}, 415),
        ({"content-length": "0"}, 200),
        ({}, 200),
    ],
)
def test_bodies_have_a_type_that_browsers_ask_permission_for(headers: dict[str, str], expected: int) -> None:
    assert status(HttpDoors(()), "POST", {"host": "127.0.0.1", **headers}) == expected


@pytest.mark.parametrize(("host", "refused"), [("127.0.0.1", False), ("::1", False), ("localhost", False), ("", True),
                                               ("0.0.0.0", True), ("10.0.0.1", True), ("h.example", True)])  # fmt: skip
def test_an_open_listener_needs_a_login(host: str, refused: bool) -> None:
    require_login("It", host, has_login=True, insecure=False, remedy="x")
    require_login("It", host, has_login=False, insecure=True, remedy="x")
    if refused:
        with pytest.raises(OpenListenerError, match="--insecure"):
            require_login("It", host, has_login=False, insecure=False, remedy="x")
    else:
        require_login("It", host, has_login=False, insecure=False, remedy="x")


class Slot:
    def __init__(self) -> None:
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


def test_an_address_makes_room_for_its_own_connections_only() -> None:
    slots = HttpSlots(total=10, of_address=3)
    hostile = [Slot() for _ in range(3)]
    assert all(slots.enter(slot, "10.0.0.1") for slot in hostile)
    other = Slot()
    assert slots.enter(other, "10.0.0.2")
    slots.handle(hostile[0])
    assert slots.enter(Slot(), "10.0.0.1")
    assert [slot.is_aborted for slot in (*hostile, other)] == [False, True, False, False]
    assert len(slots) == 4


def test_connections_whose_requests_are_handled_are_not_closed() -> None:
    slots = HttpSlots(total=2, of_address=2)
    busy = [Slot(), Slot()]
    for slot in busy:
        assert slots.enter(slot, "10.0.0.1")
        slots.handle(slot)
    assert not slots.enter(Slot(), "10.0.0.2")
    slots.wait(busy[1])
    assert slots.enter(Slot(), "10.0.0.2")
    assert [slot.is_aborted for slot in busy] == [False, True]
    slots.leave(busy[0])
    assert len(slots) == 1


def test_above_the_total_the_address_with_the_most_makes_room() -> None:
    slots = HttpSlots(total=4, of_address=3)
    single = Slot()
    assert slots.enter(single, "2001:db8:0:1::1")
    many = [Slot() for _ in range(3)]
    assert [slots.enter(slot, f"2001:db8::{number}") for number, slot in enumerate(many)] == [True] * 3
    assert slots.enter(Slot(), "10.0.0.1")
    assert [slot.is_aborted for slot in (single, *many)] == [False, True, False, False]
