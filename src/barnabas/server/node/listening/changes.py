"""Machine: decides what a change of the dynamic configs of a broker means for its listeners.

The rules are those of Kafka's `DynamicListenerConfig` for clusters without ZooKeeper:

- a listener is added or removed by its name; the address and the protocol of an open one stay as they are
- the advertised listeners cannot change, because the broker is registered with them: without `advertised.listeners`
  they are all listeners, and none can be added or removed
- the configs with the prefix of an open listener stay as they are, but for its stores and its limits of connections
- stores of a listener without TLS may be set, and have no effect
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.config import ConfigError
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.server.metadata.config_rules import is_about_listeners
from barnabas.server.metadata.configs.not_applied import OF_OPEN_LISTENERS, STORES
from barnabas.server.node.config import NodeConfig
from barnabas.server.node.setup.listeners import inter_broker_listener, read_listeners

_PREFIX: Final = "listener.name."


class ListenerPlan(Struct, frozen=True):
    """What changes. `config` is the configuration of the node with the change."""

    config: NodeConfig
    added: tuple[ListenerEndpoint, ...] = ()
    removed: tuple[str, ...] = ()
    new_stores: tuple[ListenerEndpoint, ...] = ()
    """The open listeners whose key store or trust store has other settings."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.new_stores)


def plan_listeners(static: NodeConfig, current: NodeConfig, dynamic: Mapping[str, str]) -> ListenerPlan:
    """The change from `current`, the configuration in effect, to the configuration file `static` with the configs
    `dynamic` of the broker. Raises ConfigError if Kafka refuses such a change."""
    texts = {**static.given, **{name: text for name, text in dynamic.items() if is_about_listeners(name)}}
    clients, controllers = read_listeners(texts, static.topology)
    config = replace(
        static,
        given=texts,
        listeners=clients.bound,
        advertised=clients.advertised,
        controller_listeners=controllers.bound,
        controller_advertised=controllers.advertised,
        inter_broker_listener=inter_broker_listener(texts, clients),
    )
    if _by_name(config.controller_listeners) != _by_name(current.controller_listeners):
        raise ConfigError("The listeners of controllers cannot be changed while the node runs.")
    before, after = _by_name(current.listeners), _by_name(config.listeners)
    added = tuple(endpoint for name, endpoint in after.items() if name not in before)
    removed = tuple(name for name in before if name not in after)
    if (added or removed) and not texts.get("advertised.listeners", "").strip():
        raise ConfigError(
            "The advertised listeners cannot be changed while the node runs, and without advertised.listeners they are"
            " all listeners. Set advertised.listeners in the configuration file, restart the node, and repeat."
        )
    advertised = sorted(set(removed) & _by_name(static.listeners).keys())
    if advertised:
        raise ConfigError(
            f"{', '.join(advertised)}: an advertised listener cannot be removed while the node runs. Remove it from "
            "the configuration file, and restart the node."
        )
    if config.inter_broker_listener != current.inter_broker_listener:
        raise ConfigError("The listener for requests between brokers cannot be changed while the node runs.")
    for name in before.keys() & after.keys():
        _check_kept(before[name], after[name])
    kept = [*(e for name, e in after.items() if name in before), *config.controller_listeners]
    for endpoint in kept:
        _check_configs(endpoint.name, current.given, texts)
    with_tls = (endpoint for endpoint in kept if endpoint.security_protocol in ("SSL", "SASL_SSL"))
    changed = tuple(e for e in with_tls if _stores(e.name, current.given) != _stores(e.name, texts))
    return ListenerPlan(config, added, removed, changed)


def _by_name(endpoints: tuple[ListenerEndpoint, ...]) -> dict[str, ListenerEndpoint]:
    return {endpoint.name: endpoint for endpoint in endpoints}


def _check_kept(before: ListenerEndpoint, after: ListenerEndpoint) -> None:
    if before.security_protocol != after.security_protocol:
        raise ConfigError(
            f"The security protocol of the listener {before.name} cannot be changed while it is open. Add a listener "
            "with another name."
        )
    if before != after:
        raise ConfigError(
            f"The address of the listener {before.name} cannot be changed while it is open. Add a listener with "
            "another name."
        )


def _check_configs(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    fixed = [
        key
        for key in sorted(dict(_of_listener(name, before)).keys() | dict(_of_listener(name, after)).keys())
        if key not in OF_OPEN_LISTENERS and before.get(_full(name, key)) != after.get(_full(name, key))
    ]
    if fixed:
        raise ConfigError(
            f"{', '.join(_full(name, key) for key in fixed)} cannot be changed while the listener {name} is open. "
            "Restart the node with the new value in its configuration file, or add a listener."
        )


def _stores(name: str, texts: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in _of_listener(name, texts) if key in STORES}


def _of_listener(name: str, texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The configs with the prefix of a listener, without the prefix."""
    prefix = _full(name, "")
    return ((key.removeprefix(prefix), text) for key, text in texts.items() if key.startswith(prefix))


def _full(name: str, key: str) -> str:
    return f"{_PREFIX}{name.lower()}.{key}"
