"""Shell: decides on a request with many entries in parts, so that the event loop serves others in between.

Each part has records of its own in the metadata log. If the node loses the leadership in the middle, the earlier parts
are done, and the client gets NOT_CONTROLLER, as it does when the response to a complete request is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from functools import partial
from typing import Final

from barnabas.core.decision import Decision
from barnabas.core.work import in_slices
from barnabas.protocol.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from barnabas.protocol.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from barnabas.protocol.wire.schema import Message
from barnabas.server.metadata.controller.acls import CHANGES_MAX, check_number, decide_removal, selecting
from barnabas.server.metadata.controller.create_topics import WholeRequest, decide_create_topics
from barnabas.server.metadata.controller.settings import Charge, ControllerConfig, DecideContext
from barnabas.server.metadata.driver import ControllerDriver
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.request_parts import Division, join, parts_of

TOPICS_PER_DECISION: Final = 50
"""CreateTopics with more topics is decided in parts of this many."""
ACLS_PER_DECISION: Final = 200
"""ACLs are created and deleted in parts of this many."""
USERS_PER_DECISION: Final = 500
"""AlterUserScramCredentials is decided in parts of this many users."""


async def create_topics(
    driver: ControllerDriver, settings: ControllerConfig, request: CreateTopicsRequest, version: int, charge: Charge
) -> CreateTopicsResponse:
    """Create the topics, in parts. Raises KafkaError as `ControllerDriver.submit` does."""
    whole = WholeRequest.of(request, settings)
    topics = list({topic.name: topic for topic in request.topics}.values())
    response = CreateTopicsResponse()
    for start in range(0, len(topics), TOPICS_PER_DECISION):
        part = CreateTopicsRequest(
            topics=topics[start : start + TOPICS_PER_DECISION],
            timeout_ms=request.timeout_ms,
            validate_only=request.validate_only,
        )
        created = await driver.submit(partial(_decide, request=part, whole=whole), version=version, charge=charge)
        response.topics += created.topics
        await asyncio.sleep(0)
    return response


def _decide(
    image: ClusterImage, ctx: DecideContext, *, request: CreateTopicsRequest, whole: WholeRequest
) -> Decision[MetadataRecord, CreateTopicsResponse]:
    return decide_create_topics(image, request, ctx, whole)


async def alter_users(
    driver: ControllerDriver, request: AlterUserScramCredentialsRequest, version: int
) -> AlterUserScramCredentialsResponse:
    """Alter the credentials of users, in parts; all changes of one user are in the same part. Raises KafkaError as
    `ControllerDriver.handle` does."""
    parts: list[AlterUserScramCredentialsRequest] = []
    part_of: dict[str, AlterUserScramCredentialsRequest] = {}

    def part(user: str) -> AlterUserScramCredentialsRequest:
        if user not in part_of:
            if len(part_of) % USERS_PER_DECISION == 0:
                parts.append(AlterUserScramCredentialsRequest(deletions=[], upsertions=[]))
            part_of[user] = parts[-1]
        return part_of[user]

    for deletion in request.deletions:
        part(deletion.name).deletions.append(deletion)
    for upsertion in request.upsertions:
        part(upsertion.name).upsertions.append(upsertion)
    response = AlterUserScramCredentialsResponse()
    for each in parts:
        altered = await driver.handle(each, version)
        assert isinstance(altered, AlterUserScramCredentialsResponse)
        response.results += altered.results
        await asyncio.sleep(0)
    return response


async def create_acls(driver: ControllerDriver, request: CreateAclsRequest, version: int) -> CreateAclsResponse:
    """Create the ACLs, in parts. Raises KafkaError as `ControllerDriver.handle` does, and if there are too many."""
    if len(request.creations) > CHANGES_MAX:
        await in_slices(_as_generator(check_number(driver.image, request.creations)))
    response = CreateAclsResponse(results=[])
    for start in range(0, len(request.creations), ACLS_PER_DECISION):
        part = CreateAclsRequest(creations=request.creations[start : start + ACLS_PER_DECISION])
        created = await driver.handle(part, version)
        assert isinstance(created, CreateAclsResponse)
        response.results += created.results
        await asyncio.sleep(0)
    return response


async def delete_acls(driver: ControllerDriver, request: DeleteAclsRequest, version: int) -> DeleteAclsResponse:
    """Delete the ACLs that the filters select, in parts. Raises KafkaError as `create_acls` does. ACLs that are created
    meanwhile stay."""
    ids, results = await in_slices(selecting(driver.image, request.filters))
    for start in range(0, max(len(ids), 1), ACLS_PER_DECISION):
        decide = partial(decide_removal, ids=ids[start : start + ACLS_PER_DECISION])
        await driver.submit(decide, version=version)
        await asyncio.sleep(0)
    return DeleteAclsResponse(filter_results=results)


def _as_generator(steps: Iterator[int]) -> Generator[int, None, None]:
    yield from steps


async def handle_in_parts(
    driver: ControllerDriver, request: Message, version: int, division: Division, charge: Charge
) -> Message:
    """Decide on the request part by part. A part that fails as a whole ends the request with its response. Raises
    KafkaError as `ControllerDriver.handle` does."""
    whole: Message | None = None
    for part in parts_of(request, division):
        response = await driver.handle(part, version, charge)
        if getattr(response, "error_code", None):
            return response
        if whole is None:
            whole = response
        else:
            join(whole, response, division)
        await asyncio.sleep(0)
    assert whole is not None
    return whole
