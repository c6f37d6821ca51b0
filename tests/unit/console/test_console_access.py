"""Users, sessions, masks, the gate and the slowing down of guesses."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.console.access.gate import SESSIONS_OF_USER_MAX, Gate
from barnabas.console.access.masking import MaskRule, masked, rules_of
from barnabas.console.access.sessions import LIFETIME_MS, Signer
from barnabas.console.access.users import Role, User, parse_users, user_line
from barnabas.console.errors import ConsoleError, NotAllowedError
from barnabas.protocol.security.login_attempts import FREE, LoginAttempts
from barnabas.protocol.security.password_hash import check_password, hash_password

SALT = bytes(range(16))
ALICE = User("alice", Role.EDITOR, hash_password("correct horse", SALT))


def digest(text: str) -> str:
    return f"{len(text):064x}"


# -- users -------------------------------------------------------------------------------------------------------------


def test_passwords_are_checked_against_their_hash() -> None:
    assert check_password("correct horse", ALICE.password_hash)
    assert not check_password("correct horsf", ALICE.password_hash)


def test_a_users_file_is_read_back_as_it_was_written() -> None:
    text = "# people\n\n" + user_line("alice", Role.EDITOR, ALICE.password_hash) + "\n"
    assert parse_users(text, "users") == {"alice": ALICE}


@pytest.mark.parametrize(
    "line",
    ["alice", "alice:boss:x", "alice:admin:plain", "a b:admin:" + ALICE.password_hash, "alice:admin:scrypt$1$1$1$!$!",
     "alice:admin:scrypt$1073741824$8$1$AAECAwQFBgcICQoLDA0ODw==$AAECAwQFBgcICQoLDA0ODw=="],
)  # fmt: skip
def test_an_invalid_line_of_a_users_file_is_named(line: str) -> None:
    with pytest.raises(ConsoleError, match=r"^users:2: this line is not a user"):
        parse_users("\n" + line, "users")


def test_a_users_file_without_users_is_refused() -> None:
    with pytest.raises(ConsoleError, match="has no users"):
        parse_users("# nobody\n", "users")


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_a_session_is_read_from_its_cookie_until_it_expires() -> None:
    signer = Signer(b"s" * 32)
    session, cookie = signer.new_session("id", ALICE, 1_000)
    assert signer.session(cookie, 1_000 + LIFETIME_MS - 1) == session
    assert signer.session(cookie, 1_000 + LIFETIME_MS) is None


@pytest.mark.parametrize("change", [lambda c: c + "0", lambda c: "e30" + c, lambda c: "", lambda c: c.split(".")[0]])
def test_a_changed_cookie_is_no_session(change: Any) -> None:
    _, cookie = Signer(b"s" * 32).new_session("id", ALICE, 0)
    assert Signer(b"s" * 32).session(change(cookie), 1) is None


def test_a_cookie_of_another_secret_or_purpose_is_no_session() -> None:
    _, cookie = Signer(b"s" * 32).new_session("id", ALICE, 0)
    assert Signer(b"t" * 32).session(cookie, 1) is None
    assert Signer(b"s" * 32).verified("notice", cookie) is None


def gate(users: dict[str, User] | None, *, is_read_only: bool = False) -> Gate:
    return Gate(Signer(b"s" * 32), None if users is None else lambda: users, is_read_only=is_read_only)


def test_a_user_with_another_password_or_none_any_more_is_logged_out() -> None:
    users = {"alice": ALICE}
    present = gate(users)
    cookie = present.log_in(ALICE, "id", 0)
    assert present.visit(cookie, 1, "new").user == ALICE
    users["alice"] = User("alice", Role.ADMIN, hash_password("another one", SALT))
    assert present.visit(cookie, 1, "new").user is None
    del users["alice"]
    assert present.visit(cookie, 1, "new").user is None


def test_a_change_needs_the_token_of_its_own_session() -> None:
    present = gate(None)
    visit, other = present.visit(None, 0, "mine"), present.visit(None, 0, "other")
    assert present.check_change(visit, Role.ADMIN, visit.csrf_token).role is Role.ADMIN
    for token in (other.csrf_token, "", "é"):
        with pytest.raises(NotAllowedError, match="form has expired"):
            present.check_change(visit, Role.ADMIN, token)


def test_a_role_includes_the_lower_ones_only() -> None:
    present = gate({"alice": ALICE})
    cookie = present.log_in(ALICE, "id", 0)
    visit = present.visit(cookie, 1, "new")
    assert present.check_change(visit, Role.VIEWER, visit.csrf_token) == ALICE
    with pytest.raises(NotAllowedError, match="needs the role admin; you are editor"):
        present.check_change(visit, Role.ADMIN, visit.csrf_token)


def test_a_read_only_console_refuses_changes_and_lets_checks_pass() -> None:
    present = gate(None, is_read_only=True)
    visit = present.visit(None, 0, "id")
    with pytest.raises(NotAllowedError, match="read-only"):
        present.check_change(visit, Role.VIEWER, visit.csrf_token)
    present.check_change(visit, Role.VIEWER, visit.csrf_token, is_check=True)


def test_a_session_ends_with_the_logout_and_is_not_another_one() -> None:
    present = gate({"alice": ALICE})
    first, second = present.log_in(ALICE, "1", 0), present.log_in(ALICE, "2", 0)
    present.log_out(present.visit(first, 1, "new").session)
    assert present.visit(first, 1, "new").user is None
    assert present.visit(second, 1, "new").user == ALICE


def test_the_oldest_of_very_many_sessions_of_a_user_ends() -> None:
    present = gate({"alice": ALICE})
    cookies = [present.log_in(ALICE, str(number), 0) for number in range(SESSIONS_OF_USER_MAX + 1)]
    assert [present.visit(cookie, 1, "new").user is None for cookie in cookies] == [True] + [False] * 50


def test_guesses_of_an_address_wait_longer_and_longer() -> None:
    attempts = LoginAttempts()
    for _ in range(FREE):
        assert attempts.wait_ms("10.0.0.1", 0) == 0
        attempts.failed("10.0.0.1", 0)
    assert attempts.wait_ms("10.0.0.1", 500) == 1_500
    attempts.failed("10.0.0.1", 2_000)
    assert attempts.wait_ms("10.0.0.1", 2_000) == 4_000
    assert attempts.wait_ms("10.0.0.2", 2_000) == 0
    attempts.succeeded("10.0.0.1")
    assert attempts.wait_ms("10.0.0.1", 2_000) == 0


# -- masks -------------------------------------------------------------------------------------------------------------

VALUE = {"id": 7, "card": "4111111111111111", "owner": {"email": "a@b.c", "tags": [{"email": "x@y.z"}, "n"]}}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("t:value.id=remove", {k: v for k, v in VALUE.items() if k != "id"}),
        ("t:value.card=last4", {**VALUE, "card": "***1111"}),
        ("t:value.id=last4", {**VALUE, "id": "***"}),
        ("t:value.owner.email=replace", {**VALUE, "owner": {**VALUE["owner"], "email": "***"}}),  # type: ignore[dict-item]
        ("t:value.**.email=replace",
         {**VALUE, "owner": {"email": "***", "tags": [{"email": "***"}, "n"]}}),
        ("t:value.owner.tags.0.email=hash",
         {**VALUE, "owner": {"email": "a@b.c", "tags": [{"email": "#" + "0" * 12}, "n"]}}),
        ("t:value=replace", "***"),
        ("t:value=remove", None),
        ("t:value.absent=replace", VALUE),
    ],
)  # fmt: skip
def test_masks_hide_what_their_path_selects(rule: str, expected: object) -> None:
    assert masked(VALUE, [MaskRule.parse(rule)], digest) == expected


def test_a_scalar_in_which_a_path_cannot_be_followed_is_hidden_as_a_whole() -> None:
    rule = MaskRule.parse("t:value.email=replace")
    assert masked("a@b.c", [rule], digest) == "***"
    assert masked(None, [rule], digest) is None


def test_rules_hold_for_the_topics_of_their_pattern() -> None:
    rules = [MaskRule.parse("customers*:value.a=remove"), MaskRule.parse("*:key=hash")]
    assert rules_of(rules, "customers-eu", "value") == rules[:1]
    assert rules_of(rules, "orders", "value") == []
    assert rules_of(rules, "orders", "key") == rules[1:]


@pytest.mark.parametrize("text", ["", "t", "t:value.a", "t:body.a=replace", "t:value.a=scramble", "t:value..a=remove"])
def test_an_invalid_mask_is_refused_with_the_form_of_a_rule(text: str) -> None:
    with pytest.raises(ValueError, match="write TOPICS:PATH=ACTION"):
        MaskRule.parse(text)
