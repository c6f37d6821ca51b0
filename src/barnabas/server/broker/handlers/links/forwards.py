"""Shell: the handlers of cluster links (keys from 10003 on, of Barnabas, not of Kafka), which pass the request on."""

from __future__ import annotations

from barnabas.protocol.wire.messages.alter_link import AlterLinkRequest, AlterLinkResponse
from barnabas.protocol.wire.messages.alter_mirrors import AlterMirrorsRequest, AlterMirrorsResponse
from barnabas.protocol.wire.messages.describe_links import DescribeLinksRequest, DescribeLinksResponse
from barnabas.protocol.wire.messages.describe_mirrors import DescribeMirrorsRequest, DescribeMirrorsResponse
from barnabas.protocol.wire.messages.read_link import ReadLinkRequest, ReadLinkResponse
from barnabas.protocol.wire.messages.read_mirror_state import ReadMirrorStateRequest, ReadMirrorStateResponse
from barnabas.protocol.wire.messages.write_mirror_state import WriteMirrorStateRequest, WriteMirrorStateResponse
from barnabas.server.broker.handlers.links.port import Links
from barnabas.server.broker.request_context import RequestContext


async def alter_link(links: Links, ctx: RequestContext, request: AlterLinkRequest) -> AlterLinkResponse:
    """AlterLink (key 10003), version 0. An API of Barnabas, not of Kafka.

    - 0: creates (`operation` 0), replaces (1) or deletes (2) a cluster link

    Any broker answers; the link's coordinator carries out the request. Before a link is created or changed, the
    coordinator connects to the source cluster. `validate_only` does all but store the link.
    """
    return await links.alter_link(request)


async def describe_links(links: Links, ctx: RequestContext, request: DescribeLinksRequest) -> DescribeLinksResponse:
    """DescribeLinks (key 10004), version 0. An API of Barnabas, not of Kafka.

    - 0: cluster links, by name or all, and on request the stored states of their mirror partitions

    Any broker answers. Passwords in the settings of a link are hidden. The other side of a link uses this API to learn
    where a stopped mirror ended, before it mirrors in the other direction.
    """
    return await links.describe_links(request)


async def alter_mirrors(links: Links, ctx: RequestContext, request: AlterMirrorsRequest) -> AlterMirrorsResponse:
    """AlterMirrors (key 10005), version 0. An API of Barnabas, not of Kafka.

    - 0: starts (`operation` 0), pauses (1), resumes (2), stops (3) or recovers (4) mirror topics of a link

    Any broker answers; the link's coordinator carries out the request. Topics are named by regular expressions, which
    must match the whole name. The response says what was requested of each topic; the leaders of its partitions do it
    later.
    """
    return await links.alter_mirrors(request)


async def describe_mirrors(
    links: Links, ctx: RequestContext, request: DescribeMirrorsRequest
) -> DescribeMirrorsResponse:
    """DescribeMirrors (key 10006), version 0. An API of Barnabas, not of Kafka.

    - 0: state, position and lag of the mirror partitions that this broker leads
    """
    return links.describe_mirrors(request)


async def read_link(links: Links, ctx: RequestContext, request: ReadLinkRequest) -> ReadLinkResponse:
    """ReadLink (key 10007), version 0. An API of Barnabas, not of Kafka.

    - 0: a leader of mirror partitions reads the definition of its link, with passwords, from the link's coordinator

    Only the coordinator answers; another broker returns NOT_COORDINATOR.
    """
    return links.read_link(request)


async def read_mirror_state(
    links: Links, ctx: RequestContext, request: ReadMirrorStateRequest
) -> ReadMirrorStateResponse:
    """ReadMirrorState (key 10008), version 0. An API of Barnabas, not of Kafka.

    - 0: the leader of a mirror partition reads the stored state, and fences earlier leaders

    Only the link's coordinator answers; another broker returns NOT_COORDINATOR.
    """
    return await links.read_state(request)


async def write_mirror_state(
    links: Links, ctx: RequestContext, request: WriteMirrorStateRequest
) -> WriteMirrorStateResponse:
    """WriteMirrorState (key 10009), version 0. An API of Barnabas, not of Kafka.

    - 0: the leader of a mirror partition stores the partition's state

    Only the link's coordinator answers; another broker returns NOT_COORDINATOR.
    """
    return await links.write_state(request)
