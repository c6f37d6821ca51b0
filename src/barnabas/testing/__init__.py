"""Brokers and clusters for tests: `from barnabas.testing import EmbeddedBroker, ClusterProcess, Proxy`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.testing.embedded import AsyncEmbeddedBroker, EmbeddedBroker
    from barnabas.testing.process_cluster import ClusterProcess
    from barnabas.testing.proxy import Proxy

_HOMES = {
    "AsyncEmbeddedBroker": "embedded",
    "ClusterProcess": "process_cluster",
    "EmbeddedBroker": "embedded",
    "Proxy": "proxy",
}
__all__ = ["AsyncEmbeddedBroker", "ClusterProcess", "EmbeddedBroker", "Proxy"]


def __getattr__(name: str) -> Any:
    """Imports the broker on first use. Every pytest run of an environment with this package imports this module for the
    pytest plugin, so the import must stay cheap."""
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
