"""The users of HTTP servers: what is remembered, who waits, and files that change."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas.core.config import ConfigError
from barnabas.protocol.security.login_attempts import FREE
from barnabas.protocol.security.password_hash import hash_password
from barnabas.protocol.transport.http.logins import (
    CHECKS_OF_ADDRESS_MAX,
    REMEMBERED_S,
    Logins,
    TooManyLoginsError,
)
from barnabas.protocol.transport.http.settings import parse_users
from barnabas.protocol.transport.http.users import UsersFile

HASH = hash_password("adaadaada", bytes(16))


class People:
    """Users in memory. A check waits until `free` is set."""

    def __init__(self, **passwords: str) -> None:
        self.passwords = passwords
        self.checked: list[str] = []
        self.free = asyncio.Event()
        self.free.set()

    def secret(self, name: str) -> str | None:
        return self.passwords.get(name)

    async def is_right(self, name: str, password: str) -> bool:
        self.checked.append(name)
        await self.free.wait()
        return self.passwords.get(name) == password


def test_wrong_passwords_slow_down_their_address_and_not_the_user() -> None:
    async def main() -> None:
        now = [0.0]
        logins = Logins(People(ada="right"), lambda: now[0])
        for _ in range(FREE):
            assert not await logins.accepts("ada", "wrong", "10.0.0.1")
        with pytest.raises(TooManyLoginsError, match="failed logins: try again in 2 s"):
            await logins.accepts("ada", "right", "10.0.0.1")  # a guess that is right is not let in either
        assert await logins.accepts("ada", "right", "10.0.0.2")
        assert await logins.accepts("ada", "right", "10.0.0.1")  # a script's password stays known
        now[0] = REMEMBERED_S
        assert await logins.accepts("ada", "right", "10.0.0.1")

    asyncio.run(main())


def test_a_password_is_remembered_until_it_changes() -> None:
    async def main() -> None:
        people = People(ada="right", bob="right")
        logins = Logins(people, lambda: 0.0)
        for _ in range(3):
            assert await logins.accepts("ada", "right", "a")
        assert people.checked == ["ada"]
        people.passwords["ada"] = "another"
        assert not await logins.accepts("ada", "right", "a")
        del people.passwords["bob"]
        assert not await logins.accepts("bob", "right", "a")

    asyncio.run(main())


def test_very_many_logins_of_an_address_do_not_keep_others_out() -> None:
    async def main() -> None:
        people = People(ada="right")
        people.free.clear()
        logins = Logins(people, lambda: 0.0)
        flood = [asyncio.create_task(logins.accepts(f"user{number}", "x", "10.0.0.1")) for number in range(50)]
        same = [asyncio.create_task(logins.accepts("ada", "right", "10.0.0.2")) for _ in range(50)]
        await asyncio.sleep(0)
        people.free.set()
        assert all(await asyncio.gather(*same))  # clients that start together are checked once
        results = await asyncio.gather(*flood, return_exceptions=True)
        assert sum(isinstance(result, TooManyLoginsError) for result in results) == 50 - CHECKS_OF_ADDRESS_MAX
        assert people.checked.count("ada") == 1

    asyncio.run(main())


def test_a_file_has_passwords_and_hashes(tmp_path: Path) -> None:
    place = tmp_path / "users"
    place.write_text(f"ada: {HASH}, admin\nbob: plain\n")
    users = UsersFile(place, parse_users)

    async def rights(*attempts: tuple[str, str]) -> list[bool]:
        return [await users.is_right(name, password) for name, password in attempts]

    attempts = (("ada", "adaadaada"), ("ada", HASH), ("bob", "plain"), ("bob", "plane"), ("eve", ""), ("eve", "eve"))
    assert asyncio.run(rights(*attempts)) == [True, False, True, False, False, False]


def test_a_user_without_the_role_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "users"
    place.write_text("ada: a, admin\nbob: b\n")
    users = UsersFile(place, parse_users, lambda user: "admin" in user.roles)
    assert (users.secret("ada"), users.secret("bob")) == ("a", None)
    assert not asyncio.run(users.is_right("bob", "b"))


@pytest.mark.parametrize("content", ["nonsense", f"ada: {HASH[:-4]}", None])
def test_a_file_that_became_invalid_keeps_its_users(tmp_path: Path, content: str | None) -> None:
    place = tmp_path / "users"
    place.write_text("ada: a\n")
    users = UsersFile(place, parse_users)
    if content is None:
        place.unlink()
    else:
        place.write_text(content)
    assert users.secret("ada") == "a"
    place.write_text("carol: a longer one\n")
    assert (users.secret("ada"), users.secret("carol")) == (None, "a longer one")


def test_a_file_that_is_missing_at_the_start_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"The file of users .*nowhere cannot be read: No such file"):
        UsersFile(tmp_path / "nowhere", parse_users)
