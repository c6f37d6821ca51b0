"""For tests: a real broker inside the process. `from barnabas.testing import EmbeddedBroker`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.testing.embedded import AsyncEmbeddedBroker, EmbeddedBroker

__all__ = ["AsyncEmbeddedBroker", "EmbeddedBroker"]


def __getattr__(name: str) -> Any:
    """Imported on first use: the pytest plugin is loaded by every pytest run of an environment that has this
    package.
    """
    if name in __all__:
        from barnabas.testing import embedded

        return getattr(embedded, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
