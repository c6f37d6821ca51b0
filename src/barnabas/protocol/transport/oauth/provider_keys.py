"""Shell: the keys of a token's provider: fetched before the listeners open, then again and again.

    start     fetched once, within 3 s                              -> failed: the node starts, and tries again
    run       every sasl.oauthbearer.jwks.endpoint.refresh.ms       -> failed: the keys stay as they are; tries again
              a token names an unknown key                          -> fetched soon

A file of keys is read again when it has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas.core.backoff import Backoff
from barnabas.core.config import ConfigError
from barnabas.core.errors import BarnabasError
from barnabas.core.rng import Rng
from barnabas.core.telemetry import get_logger
from barnabas.protocol.security.oauth.signatures import KeySetError, PublicKey, decode_keys
from barnabas.protocol.security.oauth.signed import MissingKeys
from barnabas.protocol.security.oauth.validator_settings import KeySource
from barnabas.protocol.transport.blocking_calls import run_beside
from barnabas.protocol.transport.oauth.fetching import OAuthRequest, fetch_url, read_file

log = get_logger("barnabas.protocol.transport")

SETTING: Final = "sasl.oauthbearer.jwks.endpoint.url"
_FILE_CHECK_S: Final = 5.0
_START_S: Final = 3.0
_UNKNOWN_S: Final = 1.0
_UNKNOWN_MAX_S: Final = 60.0
"""The wait before the keys are fetched for an unknown key; it doubles with each fetch that brings no new key, so that
forged tokens do not flood the provider with requests."""


class ProviderKeys:
    """The newest keys. `run` keeps them up to date."""

    def __init__(self, source: KeySource, rng: Rng) -> None:
        self._source = source
        self._rng = rng
        self._keys: tuple[PublicKey, ...] = ()
        self._missing = MissingKeys()
        self._wanted = asyncio.Event()
        self._fruitless = 0
        """The number of fetches for unknown keys since the keys have changed."""
        self._changed: tuple[float, int] | None = None
        """The time of the last change and the size of the file that was read."""

    def keys(self) -> Sequence[PublicKey]:
        return self._keys

    def request_key(self, key_id: str) -> None:
        """Fetch the keys soon, unless this key was the reason within the last minute."""
        if self._missing.is_reason(key_id, asyncio.get_running_loop().time() * 1000):
            self._wanted.set()

    async def start(self) -> None:
        """Fetch the keys for the first time. Raises ConfigError if they are in a file that cannot be used.

        A provider that takes longer than `_START_S` does not keep the listeners closed: `run` fetches the keys then.
        """
        try:
            async with asyncio.timeout(_START_S):
                await self._load()
        except TimeoutError:
            log.error("the keys of OAUTHBEARER have not arrived yet; retrying", url=self._source.url)
        except BarnabasError as error:
            if self._source.path is not None:
                raise ConfigError(f"{SETTING}: {error}") from error
            log.error("the keys of OAUTHBEARER could not be fetched; retrying", reason=str(error))

    async def run(self) -> None:
        """Runs until cancelled."""
        source = self._source
        backoff = Backoff(source.retry_backoff_ms, max(source.retry_backoff_max_ms, source.retry_backoff_ms))
        failures = 0 if self._keys else 1
        while True:
            pause_s = _FILE_CHECK_S if source.path is not None else source.refresh_ms / 1000
            if failures:
                pause_s = max(backoff.delay_ms(failures - 1, self._rng) / 1000, 0.01)
            await self._wait(pause_s)
            try:
                await self._load()
                failures = 0
            except BarnabasError as error:
                failures += 1
                if failures == 1 or failures % 100 == 0:
                    log.error("the keys of OAUTHBEARER could not be fetched; retrying", reason=str(error))

    async def _wait(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._wanted.wait()
                await asyncio.sleep(min(_UNKNOWN_S * 2**self._fruitless, _UNKNOWN_MAX_S))
                self._fruitless = min(self._fruitless + 1, 10)
        except TimeoutError:
            pass
        self._wanted.clear()

    async def _load(self) -> None:
        source = self._source
        if source.path is None:
            request = OAuthRequest(SETTING, source.url, source.tls, {"Accept": "application/json"})
            document = await fetch_url(request)
        else:
            changed = await run_beside(_state_of, source.path)
            if self._keys and changed == self._changed:
                return
            document = await run_beside(read_file, SETTING, source.path)
            self._changed = changed
        try:
            found = await asyncio.to_thread(decode_keys, document)
        except KeySetError as error:
            raise KeySetError(f"{SETTING}={source.url}: {error}") from error
        if found.keys != self._keys:
            self._fruitless = 0
            log.info("keys of OAUTHBEARER loaded", url=source.url, keys=len(found.keys))
            if found.left_out:
                log.warning("keys of OAUTHBEARER are left out", url=source.url, reasons="; ".join(found.left_out))
        self._keys = found.keys


def _state_of(path: str) -> tuple[float, int] | None:
    try:
        state = Path(path).stat()
    except OSError:
        return None  # reading the file raises the error with its reason
    return state.st_mtime_ns, state.st_size
