"""Shell: the fixture of asyncio clients, once for anyio and once for each scope of pytest-asyncio's event loops.

Both plugins run an async fixture only in their own way, and on the event loop of the test. `name_for` finds the variant
that fits a test. Neither plugin is imported unless it is active.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import ModuleType
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from barnabas.testing.clients import AsyncClients

LOOP_SCOPES: Final = ("function", "class", "module", "package", "session")
_ANYIO: Final = "_barnabas_anyio_clients"


def register(config: pytest.Config) -> None:
    """Add the variants for the plugins that are active."""
    plugins = config.pluginmanager
    fixtures = ModuleType("barnabas_async_fixtures")
    if plugins.hasplugin("anyio"):
        setattr(fixtures, _ANYIO, pytest.fixture(name=_ANYIO)(_make()))
    if plugins.hasplugin("asyncio"):
        import pytest_asyncio

        for scope in LOOP_SCOPES:
            name = f"_barnabas_{scope}_clients"
            setattr(fixtures, name, pytest_asyncio.fixture(loop_scope=scope, name=name)(_make()))
    plugins.register(fixtures, "barnabas-async-fixtures")


def name_for(request: pytest.FixtureRequest) -> str:
    """The name of the fixture for the plugin that runs this test. Fails the test if none does."""
    if "anyio_backend" in request.fixturenames:
        backend = request.getfixturevalue("anyio_backend_name")
        if backend != "asyncio":
            pytest.fail(
                f"Barnabas' clients run on asyncio, not on {backend}: define a fixture anyio_backend that returns "
                "'asyncio'."
            )
        return _ANYIO
    marker = request.node.get_closest_marker("asyncio")
    if marker is None:
        pytest.fail(
            "barnabas_async_clients needs a test that is a coroutine, and pytest-asyncio or anyio to run it: install "
            "one of them, and mark the test with @pytest.mark.asyncio or @pytest.mark.anyio."
        )
    scope = marker.kwargs.get("loop_scope") or request.config.getini("asyncio_default_test_loop_scope")
    return f"_barnabas_{scope}_clients"


def _make() -> Callable[[str], AsyncIterator[AsyncClients]]:
    """A new function for each variant, because pytest-asyncio marks the function itself."""

    async def clients(barnabas_bootstrap_servers: str) -> AsyncIterator[AsyncClients]:
        from barnabas.testing.clients import AsyncClients

        made = AsyncClients(barnabas_bootstrap_servers)
        yield made
        await made.close()

    return clients
