"""Shell: DescribeConfigs (key 32), versions 1 to 4.

- 1: configs with their source, and with synonyms on request (KIP-226)
- 2: as 1
- 3: the type of each config, and its documentation on request (KIP-569)
- 4: flexible

Describes all configs of topics, brokers, groups and client-metrics subscriptions: the value, its source, whether it
can be changed while the broker runs, and its synonyms, the values that apply if it is removed. The value of a
sensitive config is null. A broker describes itself; an empty broker name describes the cluster-wide dynamic defaults.

A BROKER_LOGGER resource has the levels of this node's loggers (`broker/broker_loggers.py`).
"""

from __future__ import annotations

import asyncio

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from barnabas.server.broker.broker_loggers import describe_loggers
from barnabas.server.broker.handlers.admin.port import AdminPort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.metadata.config_view import ConfigView
from barnabas.server.metadata.controller.topic_names import name_problem
from barnabas.server.metadata.describe_configs import (
    DescribeOptions,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from barnabas.server.metadata.image.cluster import ResourceType

EXTRA_ROWS_MAX = 20_000
"""When the counted configs of a response reach this number, further resources are rejected with POLICY_VIOLATION. The
first result for a topic is neither counted nor rejected."""
_RESOURCES_PER_TURN = 50
"""Resources that are described before other tasks of the event loop may run."""


async def handle(port: AdminPort, ctx: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    view = ConfigView(port.metadata.image.configs, node_id=port.node_id, static=port.static_config)
    results: list[DescribeConfigsResult] = []
    found: dict[tuple[object, ...], list[DescribeConfigsResourceResult]] = {}
    extra = 0
    for resource in request.resources:
        if len(results) % _RESOURCES_PER_TURN == _RESOURCES_PER_TURN - 1:
            await asyncio.sleep(0)
        options = DescribeOptions(
            names=frozenset(resource.configuration_keys) if resource.configuration_keys else None,
            include_synonyms=request.include_synonyms,
            include_documentation=request.include_documentation,
            version=ctx.api_version,
        )
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        try:
            key = (resource.resource_type, resource.resource_name, options.names)
            # A request cannot name more distinct topics than exist, but any number of repeated topics and of other
            # resources. So only these count towards the limit.
            is_extra = key in found or resource.resource_type != ResourceType.TOPIC
            if is_extra and extra >= EXTRA_ROWS_MAX:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION, "The response has too many configs. Request fewer resources."
                )
            if key not in found:
                found[key] = _describe(port, view, resource, options)
            result.configs = found[key]
            extra += is_extra * len(result.configs)
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = str(error)
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _describe(
    port: AdminPort, view: ConfigView, resource: DescribeConfigsResource, options: DescribeOptions
) -> list[DescribeConfigsResourceResult]:
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            problem = name_problem(name)
            if problem is not None:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
            if name not in port.metadata.image.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return describe_topic(view, name, options)
        case ResourceType.BROKER:
            if name == "":
                return describe_broker_defaults(view, options)
            _require_self(port, name)
            return describe_broker(view, options)
        case ResourceType.BROKER_LOGGER:
            _require_self(port, name)
            return describe_loggers(options.wants)
        case ResourceType.CLIENT_METRICS:
            _require_name(name)
            return describe_client_metrics(view, name, options)
        case ResourceType.GROUP:
            _require_name(name)
            return describe_group(view, name, options)
        case _:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Resource type {resource.resource_type} has no configs.")


def _require_self(port: AdminPort, name: str) -> None:
    if name != str(port.node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {port.node_id} or empty string, but received {name!r}.",
        )


def _require_name(name: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The resource name must not be empty.")
