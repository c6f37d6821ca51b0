"""Machine: the authorization of requests about cluster links. A guard has the form that `topics.py` describes.

A broker forwards such a request to the link's coordinator, after it has authorized the client. So a request is also
allowed to a client that may act as a broker.
"""

from __future__ import annotations

from typing import Any

from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.server.broker.authorization.checks import CLUSTER, REFUSALS, ClientRights
from barnabas.server.broker.authorization.outcomes import Outcome
from barnabas.server.broker.authorization.ports import GuardPort

_O = AclOperation


def alter(port: GuardPort, auth: ClientRights, request: Any) -> Outcome:
    return _needs(_O.ALTER, auth, request)


def describe(port: GuardPort, auth: ClientRights, request: Any) -> Outcome:
    return _needs(_O.DESCRIBE, auth, request)


def _needs(operation: AclOperation, auth: ClientRights, request: Any) -> Outcome:
    if auth.allows(_O.CLUSTER_ACTION, CLUSTER, silent=True) or auth.allows(operation, CLUSTER):
        return None
    code = REFUSALS[CLUSTER]
    response: Any = APIS[ApiKey(request.__schema__.key)].response(error_code=code, error_message=code.message)
    refused: Outcome = response
    return refused
