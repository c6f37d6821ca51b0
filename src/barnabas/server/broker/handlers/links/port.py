"""Port: cluster links, as the request handlers use them. `server/links/requests.py` implements it."""

from __future__ import annotations

from typing import Protocol

from barnabas.protocol.wire.messages.alter_link import AlterLinkRequest, AlterLinkResponse
from barnabas.protocol.wire.messages.alter_mirrors import AlterMirrorsRequest, AlterMirrorsResponse
from barnabas.protocol.wire.messages.describe_links import DescribeLinksRequest, DescribeLinksResponse
from barnabas.protocol.wire.messages.describe_mirrors import DescribeMirrorsRequest, DescribeMirrorsResponse
from barnabas.protocol.wire.messages.read_link import ReadLinkRequest, ReadLinkResponse
from barnabas.protocol.wire.messages.read_mirror_state import ReadMirrorStateRequest, ReadMirrorStateResponse
from barnabas.protocol.wire.messages.write_mirror_state import WriteMirrorStateRequest, WriteMirrorStateResponse


class Links(Protocol):
    """The cluster links. The methods raise KafkaError, which becomes the error of the response.

    `alter_link`, `alter_mirrors` and `describe_links` may be called on any broker, which asks the coordinators of the
    links. The other methods answer for this broker only.
    """

    async def alter_link(self, request: AlterLinkRequest) -> AlterLinkResponse: ...

    async def describe_links(self, request: DescribeLinksRequest) -> DescribeLinksResponse: ...

    async def alter_mirrors(self, request: AlterMirrorsRequest) -> AlterMirrorsResponse: ...

    def describe_mirrors(self, request: DescribeMirrorsRequest) -> DescribeMirrorsResponse:
        """What this broker says about the mirror partitions that it leads."""
        ...

    def read_link(self, request: ReadLinkRequest) -> ReadLinkResponse:
        """The definition of a link that this broker coordinates. Raises NOT_COORDINATOR."""
        ...

    async def read_state(self, request: ReadMirrorStateRequest) -> ReadMirrorStateResponse: ...

    async def write_state(self, request: WriteMirrorStateRequest) -> WriteMirrorStateResponse: ...
