"""What the leader of a mirror partition asks the source about its own mirrors."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.alter_link import LinkData
from barnabas.protocol.wire.messages.describe_links import DescribedLink, DescribeLinksResponse, StoredPartition
from barnabas.protocol.wire.messages.read_mirror_state import MirrorStateData
from barnabas.server.links.fetching.ports import MirrorPartition
from barnabas.server.links.leaders import SourceMirrors


class Source:
    """A source whose mirror is in a state of a newer version."""

    async def request(self, message: Any, node_id: int | None = None) -> Any:
        mirror = StoredPartition(topic_id=UUID(int=1), topic="t", partition=0, state=MirrorStateData(state=99))
        return DescribeLinksResponse(links=[DescribedLink(link=LinkData(name="back"), mirrors=[mirror])])


def test_a_state_of_a_newer_version_is_an_error_of_the_mirror_only() -> None:
    with pytest.raises(KafkaError, match=r"mirror of link back \(state 99\)") as raised:
        asyncio.run(SourceMirrors().stopped_position(Source(), MirrorPartition("l", "t", UUID(int=1), 0)))
    assert raised.value.code is ErrorCode.INVALID_REQUEST
