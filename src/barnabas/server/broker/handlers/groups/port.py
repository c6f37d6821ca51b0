"""Port: what the handlers of groups use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from barnabas.server.broker.auto_create import AutoTopicCreation
    from barnabas.server.broker.metadata_cache import BrokerMetadataCache
    from barnabas.server.coordination.group.service import GroupCoordinator
    from barnabas.server.coordination.group.share.service import ShareGroupService


class GroupsPort(Struct, frozen=True):
    """The coordinators of the groups of this broker."""

    groups: GroupCoordinator
    share_groups: ShareGroupService
    metadata: BrokerMetadataCache
    topic_creation: AutoTopicCreation
