"""Table: the operations that ACLs allow or deny, and those that apply to each kind of resource.

The integers are Kafka's `AclOperation` codes.

Responses that list authorized operations carry them as a bit field, bit n for operation n.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class AclOperation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


def bit_field(operations: tuple[AclOperation, ...]) -> int:
    """The operations as the bit field that responses carry."""
    return sum(1 << operation for operation in operations)


_O = AclOperation
TOPIC_OPERATIONS: Final = bit_field(
    (_O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS)
)
GROUP_OPERATIONS: Final = bit_field((_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS))
CLUSTER_OPERATIONS: Final = bit_field(
    (
        _O.CREATE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.CLUSTER_ACTION,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
        _O.IDEMPOTENT_WRITE,
    )
)
NOT_ASKED: Final = -(1 << 31)
"""The value in a response to a request that did not set `include_*_authorized_operations`."""
