"""Shell: the workload of users that come and go: a user is created, logs in, and is removed or gets another password
while it is connected. Between two users, a stranger sends requests without having logged in."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Final

from barnabas.client.admin.users import UserScramCredentialDeletion, UserScramCredentialUpsertion
from barnabas.core.errors import BarnabasError, KafkaError
from barnabas.protocol.security.credentials import SCRAM_ITERATIONS_MIN
from barnabas.testing.sim.cluster.logins import MECHANISM, SESSION_MS, login_of
from barnabas.testing.sim.errors import CorrectnessError
from barnabas.testing.sim.workload.supervisor import PATIENCE

if TYPE_CHECKING:
    import random

    from barnabas.client.admin import AsyncAdmin
    from barnabas.testing.sim.workload.supervisor import Workload

_WITHIN_MS: Final = 8_000
_STRANGER_MS: Final = 500
_AFTERWARDS_S: Final = 2 * SESSION_MS / 1000
"""A user that was removed continues to send requests for so long, unless they fail."""


async def visit(workload: Workload, who: str) -> None:
    """Creates users, one after the other, and lets each send requests until it is removed, and for a while longer."""
    rng, world = workload.world.random_stream(who), workload.world
    number = 0
    while not workload.stopping:
        await _intrude(workload, who)
        number += 1
        user = f"{who}.{number}"
        async with world.admin(default_api_timeout_ms=_WITHIN_MS, **PATIENCE) as admin:
            await _set_password(admin, rng, user, f"{user}-secret")
            async with world.admin(default_api_timeout_ms=_WITHIN_MS, **PATIENCE, **login_of(user)) as visitor:
                await _ask(workload, visitor, rng.uniform(0.5, 6.0), rng)
                if rng.random() < 0.3:
                    await _set_password(admin, rng, user, "another secret")
                else:
                    _raise_errors(
                        await admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, MECHANISM)])
                    )
                workload.facts.removed_users += 1
                try:
                    await _ask(workload, visitor, _AFTERWARDS_S, rng)
                except (BarnabasError, TimeoutError) as error:
                    workload.trace(user, f"is not served any more: {type(error).__name__}")


async def _intrude(workload: Workload, who: str) -> None:
    """Send requests without a login. No broker answers, so they fail after their time-out."""
    settings = {**PATIENCE, "default_api_timeout_ms": _STRANGER_MS, "security_protocol": "PLAINTEXT"}
    async with workload.world.admin(**settings) as stranger:
        try:
            await stranger.list_topics()
        except (BarnabasError, TimeoutError) as error:
            workload.trace(who, f"a stranger is not served: {type(error).__name__}")
        else:
            raise CorrectnessError("A client that has not logged in got an answer.")


async def _ask(workload: Workload, visitor: AsyncAdmin, seconds: float, rng: random.Random) -> None:
    end = workload.world.loop.time() + seconds
    while workload.world.loop.time() < end and not workload.stopping:
        await visitor.list_topics()
        await asyncio.sleep(rng.uniform(0.05, 0.5))


async def _set_password(admin: AsyncAdmin, rng: random.Random, user: str, password: str) -> None:
    salt = rng.randbytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, SCRAM_ITERATIONS_MIN)
    change = UserScramCredentialUpsertion(user, MECHANISM, salt=salt, salted_password=salted)
    _raise_errors(await admin.alter_user_scram_credentials([change]))


def _raise_errors(results: dict[str, KafkaError | None]) -> None:
    for error in results.values():
        if error is not None:
            raise error
