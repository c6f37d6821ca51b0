"""A real broker inside the test's process: `from barnabas.testing import EmbeddedBroker`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.testing.embedded import AsyncEmbeddedBroker, EmbeddedBroker

__all__ = ["AsyncEmbeddedBroker", "EmbeddedBroker"]


def __getattr__(name: str) -> Any:
    """Imports the broker on first use. Every pytest run of an environment with this package imports this module for the
    pytest plugin, so the import must stay cheap."""
    if name in __all__:
        from barnabas.testing import embedded

        return getattr(embedded, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
