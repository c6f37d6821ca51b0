"""Shell: measures the cluster links of Barnabas brokers: the lag of their mirrors, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.client.admin import AsyncAdmin
from barnabas.client.admin.links import FAILED, LinkDescription, MirrorStatus, lag_of_link
from barnabas.client.errors import UnsupportedApiError
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition

_FAILED_NAMED_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class LinkSample:
    """One link at a sample."""

    lag: int | None
    """The records that all its mirrors are behind; None if that of one is unknown."""
    trouble: str = ""
    failed: tuple[tuple[TopicPartition, str], ...] = ()
    """Mirror partitions that have FAILED, at most twenty, and why."""


def sample_of(link: LinkDescription, statuses: Sequence[MirrorStatus]) -> LinkSample:
    """A link with what the leaders of its mirror partitions say."""
    mine = [status for status in statuses if status.link == link.link.name]
    failed = tuple((status.partition, status.reason) for status in mine if status.state == FAILED)
    return LinkSample(lag_of_link(link, statuses), link.trouble, failed[:_FAILED_NAMED_MAX])


class LinkSampler:
    """Measures all links. After the brokers have answered that they do not know cluster links, it sends no requests."""

    def __init__(self, admin: AsyncAdmin) -> None:
        self._admin = admin
        self._supported = True

    async def take(self) -> Mapping[str, LinkSample]:
        """Measure once. Empty if there are no links, or the console may not see them."""
        if not self._supported:
            return {}
        try:
            links = await self._admin.describe_links()
            statuses = await self._admin.describe_mirrors() if links else []
        except UnsupportedApiError:
            self._supported = False
            return {}
        except KafkaError:  # not authorized, or the links' coordinator moves: the rest of the sample counts
            return {}
        return {name: sample_of(link, statuses) for name, link in links.items()}
