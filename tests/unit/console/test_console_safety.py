"""What the console refuses: foreign hosts, missing tokens, roles, read-only mode, too large bodies; what it logs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.console.access.masking import MaskRule
from barnabas.console.access.users import Role
from barnabas.console.errors import ConsoleError
from barnabas.console.server import ConsoleServer
from barnabas.console.settings import ConsoleSettings
from barnabas.console.web.responses import BODY_BYTES_MAX
from barnabas.testing import EmbeddedBroker
from tests.unit.console.pages import Browser, console, write_users


@pytest.fixture
def users(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Browser]:
    """A console with a login: vera is a viewer, emil an editor, ada an administrator."""
    users_file = write_users(tmp_path / "users", vera=Role.VIEWER, emil=Role.EDITOR, ada=Role.ADMIN)
    masks = (MaskRule.parse("people:value.email=replace"),)
    settings = {"users_file": users_file, "masks": masks, "audit_file": tmp_path / "audit.jsonl"}
    with console(broker.bootstrap_servers, **settings) as browser:
        yield browser


def log_in(browser: Browser, name: str, password: str | None = None) -> int:
    browser.client.cookies.clear()
    text = browser.page("/login")
    token = text.split('name="csrf" value="')[1].split('"')[0]
    fields = {"csrf": token, "user": name, "password": name * 3 if password is None else password}
    return browser.client.post("/login", data=fields, follow_redirects=False).status_code


def test_a_foreign_host_name_is_refused_without_a_login(browser: Browser) -> None:
    response = browser.client.get("/", headers={"host": "evil.example:8090"})
    assert response.status_code == 403
    assert "does not answer to the name" in response.text
    foreign = browser.client.get("/api/topics", headers={"origin": "http://evil.example"})
    assert foreign.status_code == 403


def test_a_request_of_another_site_is_refused_but_its_links_are_not(browser: Browser) -> None:
    foreign = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert browser.client.get("/api/topics", headers=foreign).status_code == 403
    assert browser.client.get("/topics", headers={**foreign, "sec-fetch-mode": "navigate"}).status_code == 200
    assert browser.client.get("/api/topics", headers={"sec-fetch-site": "same-origin"}).status_code == 200


def test_a_change_without_a_token_is_refused(browser: Browser) -> None:
    response = browser.client.post("/api/topics/create", json={"topic": "forged"})
    assert response.status_code == 403
    assert "form has expired" in response.json()["error"]
    form = browser.client.post("/topics/create", data={"topic": "forged", "csrf": "0" * 64}, follow_redirects=False)
    assert form.status_code == 303
    assert browser.document("/topics?q=forged")["rows"] == []


def test_a_form_without_scripts_redirects_with_a_notice(browser: Browser) -> None:
    token = browser.client.get("/api/session").json()["csrf"]
    form = {"topic": "no-scripts", "partitions": "1", "csrf": token}
    response = browser.client.post("/topics/create", data=form)
    assert response.url.path == "/topics/no-scripts"
    assert "The topic no-scripts was created." in response.text
    assert "was created" not in browser.page("/topics/no-scripts")
    again = browser.client.post("/topics/create", data=form, headers={"referer": "http://127.0.0.1:8090/topics?q=no"})
    assert again.url.path == "/topics"
    assert "notice bad" in again.text
    strange = browser.client.post("/topics/create", data=form, headers={"referer": "http://evil.example/topics"})
    assert strange.url.path == "/"


def test_bodies_have_a_limit_and_a_type(browser: Browser) -> None:
    token = browser.client.get("/api/session").json()["csrf"]
    headers = {"x-csrf-token": token}
    large = browser.client.post("/api/topics/create", json={"topic": "x" * BODY_BYTES_MAX}, headers=headers)
    assert large.status_code == 413
    multipart = browser.client.post("/api/topics/create", files={"topic": b"x"}, headers=headers)
    assert multipart.status_code == 400
    assert browser.client.get("/api/topics/create").status_code == 404


@pytest.mark.parametrize(
    ("path", "fields", "field"),
    [
        ("/topics/create", {"topic": "many", "partitions": 1 << 31}, "partitions"),
        ("/topics/create", {"topic": "many", "partitions": 1, "replicas": 1 << 15}, "replicas"),
        ("/topics/many/delete-records", {"confirm": "many", "partition": 0, "before": 1 << 63}, "before"),
    ],
)
def test_a_number_that_no_request_can_have_is_refused(
    browser: Browser, path: str, fields: dict[str, object], field: str
) -> None:
    assert browser.change(path, 400, **fields)["error"].startswith(f"{field} must be a whole number from")


def test_a_body_that_is_nested_too_deeply_is_refused(browser: Browser) -> None:
    headers = {"x-csrf-token": browser.client.get("/api/session").json()["csrf"], "content-type": "application/json"}
    response = browser.client.post("/api/topics/create", content=b"[" * 100_000, headers=headers)
    assert response.status_code == 400


def test_a_request_without_a_login_sees_nothing(users: Browser) -> None:
    response = users.client.get("/topics", follow_redirects=False)
    assert (response.status_code, response.headers["location"]) == (303, "/login")
    for path in ("/overview", "/topics", "/session"):
        assert "Log in first" in users.document(path, 403)["error"]
    assert users.client.get("/topics/x/live").status_code == 403
    assert users.client.get("/topics/x/download").status_code == 403


def test_a_wrong_password_is_refused(users: Browser) -> None:
    assert log_in(users, "vera", "wrong") == 403
    assert log_in(users, "nobody") == 403
    assert users.client.get("/topics", follow_redirects=False).status_code == 303


def test_cookies_are_not_readable_by_scripts(users: Browser) -> None:
    log_in(users, "vera")
    cookie = users.client.post("/logout", data={"csrf": users.document("/session")["csrf"]}, follow_redirects=False)
    assert cookie.headers["location"] == "/login"
    users.client.cookies.clear()
    set_cookie = users.client.get("/login").headers["set-cookie"].lower()
    assert "httponly" in set_cookie
    assert "samesite=lax" in set_cookie


def test_a_cookie_is_worth_nothing_after_the_logout(users: Browser) -> None:
    log_in(users, "vera")
    stolen = dict(users.client.cookies)
    users.client.post("/logout", data={"csrf": users.document("/session")["csrf"]}, follow_redirects=False)
    users.client.cookies.clear()
    users.client.cookies.update(stolen)
    assert users.client.get("/topics", follow_redirects=False).status_code == 303


def test_the_body_of_a_stranger_is_not_read(users: Browser) -> None:
    response = users.client.post("/api/topics/create", content=b"[" * 100, headers={"content-type": "text/plain"})
    assert response.status_code == 403


def test_roles_decide_what_a_user_may_change(users: Browser) -> None:
    assert log_in(users, "vera") == 303
    assert users.document("/session")["role"] == "viewer"
    assert "needs the role editor" in users.change("/topics/create", 403, topic="by-vera")["error"]
    assert "Create topic" not in users.page("/topics")
    assert log_in(users, "emil") == 303
    users.change("/topics/create", topic="by-emil", partitions=1)
    assert "needs the role admin" in users.change("/topics/by-emil/delete", 403, confirm="by-emil")["error"]
    assert log_in(users, "ada") == 303
    users.change("/topics/by-emil/delete", confirm="by-emil")


def test_masked_fields_are_hidden_from_all_but_administrators(users: Browser) -> None:
    log_in(users, "ada")
    users.change("/topics/create", topic="people", partitions=1)
    users.change("/topics/people/produce", value='{"email": "a@b.c", "id": 1}')
    assert users.document("/topics/people/messages")["records"][0]["value"]["email"] == "a@b.c"
    log_in(users, "emil")
    assert users.document("/topics/people/messages")["records"][0]["value"] == {"email": "***", "id": 1}
    for path in ("messages?value_format=hex", "messages?value_format=text", "download", "messages?value_format=base64"):
        text = users.client.get(f"/topics/people/{path}").text
        assert "a@b.c" not in text
        assert b"a@b.c".hex(" ") not in text
    log_in(users, "ada")
    users.change("/topics/people/delete", confirm="people")


def test_every_change_is_in_the_audit_log_without_secrets(users: Browser, tmp_path: Path) -> None:
    log_in(users, "vera")
    users.change("/topics/create", 403, topic="refused")
    log_in(users, "ada")
    users.change("/users/password", user="dora", mechanism="SCRAM-SHA-512", password="a secret password")
    users.change("/users/dora/delete", confirm="dora")
    text = (tmp_path / "audit.jsonl").read_text()
    entries = [json.loads(line) for line in text.splitlines()]
    assert [(e["user"], e["change"], e["outcome"], e["fields"]) for e in entries] == [
        ("vera", "create topic", "failed", {"topic": "refused"}),
        ("ada", "set password", "done", {"user": "dora", "mechanism": "SCRAM-SHA-512"}),
        ("ada", "delete user", "done", {"user": "dora"}),
    ]
    assert "a secret password" not in text


def test_the_value_of_a_secret_config_is_neither_shown_nor_logged(users: Browser, tmp_path: Path) -> None:
    log_in(users, "ada")
    change = {"config": "listener.name.absent.ssl.keystore.password", "value": "a secret password"}
    token = users.document("/session")["csrf"]
    response = users.client.post("/api/brokers/1/config", json=change, headers={"x-csrf-token": token})
    assert "a secret password" not in response.text
    text = (tmp_path / "audit.jsonl").read_text()
    assert json.loads(text)["fields"] == {"broker": "1", "config": change["config"], "value": "[hidden]"}


def test_a_form_of_another_site_is_refused_although_the_browser_adds_a_password(users: Browser) -> None:
    response = users.client.post(
        "/topics/create",
        data={"topic": "forged", "partitions": 1},
        headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
        auth=("emil", "emilemilemil"),
        follow_redirects=False,
    )
    assert response.status_code == 403
    assert users.client.get("/api/topics/forged", auth=("emil", "emilemilemil")).status_code == 404


def test_scripts_log_in_with_http_basic(users: Browser) -> None:
    response = users.client.post(
        "/api/topics/create", json={"topic": "scripted", "partitions": 1}, auth=("emil", "emilemilemil")
    )
    assert response.status_code == 200, response.text
    assert users.client.get("/api/topics", auth=("emil", "wrong")).status_code == 403


def test_a_read_only_console_changes_nothing(broker: EmbeddedBroker) -> None:
    with console(broker.bootstrap_servers, is_read_only=True) as browser:
        assert browser.change("/topics/create", 403, topic="x")["error"] == "This console is read-only."
        text = browser.page("/topics")
        assert "read-only" in text
        assert "Create topic" not in text


def test_a_cluster_that_does_not_answer_is_said_on_every_page() -> None:
    client = {"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": 500, "request.timeout.ms": 400}
    with console("127.0.0.1:1", client=client) as browser:
        assert "The cluster does not answer" in browser.page("/")
        assert browser.document("/topics", 503)["error"]


def test_a_console_for_other_hosts_needs_a_login() -> None:
    for listener in ("http://0.0.0.0:0", "http://192.168.1.7:8090", "http://[::]:0"):
        with pytest.raises(ConsoleError, match="has no login"):
            ConsoleServer(ConsoleSettings({"bootstrap.servers": "x:1"}, listener=listener))
    for listener in ("https://127.0.0.1:1", "127.0.0.1", "http://127.0.0.1:x"):
        with pytest.raises(ConsoleError, match="is not a listener"):
            ConsoleServer(ConsoleSettings({"bootstrap.servers": "x:1"}, listener=listener))
