"""Table: the pages, and the entries of the navigation. Each page has a JSON twin at `/api` + its path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from barnabas.console.changes.change import Change
from barnabas.console.changes.cluster import CLUSTER_CHANGES
from barnabas.console.changes.groups import GROUP_CHANGES
from barnabas.console.changes.links import LINK_CHANGES
from barnabas.console.changes.security import SECURITY_CHANGES
from barnabas.console.changes.topics import TOPIC_CHANGES
from barnabas.console.documents import (
    brokers,
    clients,
    connectors,
    groups,
    links,
    messages,
    mirrors,
    overview,
    pipelines,
    schemas,
    security,
    topics,
    transactions,
)
from barnabas.console.sources import Call


@dataclass(frozen=True, slots=True)
class Page:
    """A path, the function that reads its document, and the template that shows it. `tab` is marked in the page."""

    path: str
    template: str
    document: Callable[[Call], Awaitable[dict[str, Any]]]
    title: str
    tab: str = ""


@dataclass(frozen=True, slots=True)
class NavEntry:
    """A link of the navigation; `needs` names what must be configured."""

    path: str
    text: str
    needs: str = ""


PAGES: Final = (
    Page("/", "overview.html", overview.overview, "Overview"),
    Page("/topics", "topics.html", topics.topic_list, "Topics"),
    Page("/topics/{topic}/messages", "messages.html", messages.messages, "Messages of {topic}", "messages"),
    Page("/topics/{topic}/configs", "topic_configs.html", topics.configs, "Configs of {topic}", "configs"),
    Page("/topics/{topic}/groups", "topic_groups.html", topics.groups, "Groups of {topic}", "groups"),
    Page("/topics/{topic}/producers", "topic_producers.html", topics.producers, "Producers of {topic}", "producers"),
    Page("/topics/{topic}/produce", "produce.html", messages.produce_form, "Produce to {topic}", "produce"),
    Page("/topics/{topic}/why", "topic_why.html", topics.why, "Why, {topic}", "why"),
    Page("/topics/{topic}", "topic.html", topics.topic, "{topic}", "partitions"),
    Page("/groups", "groups.html", groups.group_list, "Groups"),
    Page("/groups/{group:path}/reset", "group_reset.html", groups.reset_plan, "Reset {group}", "reset"),
    Page("/groups/{group:path}/why", "group_why.html", groups.why, "Why, {group}", "why"),
    Page("/groups/{group:path}", "group.html", groups.group, "{group}", "lag"),
    Page("/share-groups", "share_groups.html", groups.share_group_list, "Share groups"),
    Page("/share-groups/{group:path}", "share_group.html", groups.share_group, "{group}"),
    Page("/clients", "clients.html", clients.client_list, "Client activity"),
    Page("/transactions", "transactions.html", transactions.transaction_list, "Transactions"),
    Page("/transactions/{id:path}", "transaction.html", transactions.transaction, "{id}"),
    Page("/schemas", "schemas.html", schemas.subject_list, "Schemas"),
    Page("/schemas/{subject:path}", "schema.html", schemas.subject, "{subject}"),
    Page("/connectors", "connectors.html", connectors.connector_list, "Connectors"),
    Page("/connectors/{connector:path}", "connector.html", connectors.connector, "{connector}"),
    Page("/pipelines", "pipelines.html", pipelines.pipeline_list, "Pipelines"),
    Page("/pipelines/{pipeline}", "pipeline.html", pipelines.pipeline, "{pipeline}"),
    Page("/brokers", "brokers.html", brokers.broker_list, "Brokers"),
    Page("/brokers/{broker}", "broker.html", brokers.broker, "Broker {broker}"),
    Page("/quorum", "quorum.html", brokers.quorum, "Quorum"),
    Page("/moves", "moves.html", brokers.moves, "Moves"),
    Page("/mirrors", "mirrors.html", mirrors.mirrors, "Mirrors"),
    Page("/links", "links.html", links.link_list, "Links"),
    Page("/links/{link}", "link.html", links.link, "Link {link}"),
    Page("/acls", "acls.html", security.acls, "ACLs"),
    Page("/users", "users.html", security.users, "Users"),
    Page("/quotas", "quotas.html", security.quotas, "Quotas"),
)
"""In the order in which paths are matched: a page with a longer path before the page that it continues."""

CHANGES: Final[tuple[Change, ...]] = (
    *TOPIC_CHANGES,
    *GROUP_CHANGES,
    *CLUSTER_CHANGES,
    *LINK_CHANGES,
    *SECURITY_CHANGES,
)

NAVIGATION: Final = (
    ("", (NavEntry("/", "Overview"),)),
    (
        "Data",
        (
            NavEntry("/topics", "Topics"),
            NavEntry("/schemas", "Schemas", needs="registry"),
            NavEntry("/connectors", "Connectors", needs="connect"),
            NavEntry("/pipelines", "Pipelines", needs="pipelines"),
        ),
    ),
    (
        "Clients",
        (
            NavEntry("/clients", "Activity"),
            NavEntry("/groups", "Groups"),
            NavEntry("/share-groups", "Share groups"),
            NavEntry("/transactions", "Transactions"),
        ),
    ),
    (
        "Cluster",
        (
            NavEntry("/brokers", "Brokers"),
            NavEntry("/quorum", "Quorum"),
            NavEntry("/moves", "Moves"),
            NavEntry("/links", "Links"),
            NavEntry("/mirrors", "Mirrors", needs="mirror"),
        ),
    ),
    ("Security", (NavEntry("/acls", "ACLs"), NavEntry("/users", "Users"), NavEntry("/quotas", "Quotas"))),
)
