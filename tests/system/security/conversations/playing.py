"""Shell: plays all conversations of the table to one broker, many at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from barnabas.client import AsyncAdmin
from barnabas.client.admin.users import UserScramCredentialDeletion, UserScramCredentialUpsertion
from barnabas.core.errors import KafkaError
from tests.system.security.conversations.player import Conversation
from tests.system.security.conversations.table import USERS, Row

AT_ONCE = 20
"""Most of the longer conversations wait for the end of a session."""


async def play_all(addresses: Mapping[str, str], rows: Iterable[Row]) -> dict[str, list[str]]:
    """What the broker does in each conversation, by the name of the row. `addresses` are those of its listeners."""
    turns = asyncio.Semaphore(AT_ONCE)
    async with AsyncAdmin({"bootstrap.servers": addresses["PLAINTEXT"]}) as admin:

        async def change_user(name: str, wanted: bool, mechanism: str = "SCRAM-SHA-256") -> None:
            alteration = (
                UserScramCredentialUpsertion(name, mechanism, f"{name}-secret")
                if wanted
                else UserScramCredentialDeletion(name, mechanism)
            )
            assert (await admin.alter_user_scram_credentials([alteration]))[name] is None
            while True:
                found = (await admin.describe_user_scram_credentials([name]))[name]
                if wanted is (not isinstance(found, KafkaError) and mechanism in found):
                    return
                await asyncio.sleep(0.01)  # the broker follows the metadata log

        for name, mechanism in USERS:
            await change_user(name, True, mechanism)

        async def play(name: str, address: str, steps: tuple[str, ...]) -> tuple[str, list[str]]:
            async with turns:
                return name, await Conversation(address, change_user).play(steps)

        return dict(await asyncio.gather(*(play(row.name, addresses[row.listener], row.steps) for row in rows)))
