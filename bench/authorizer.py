"""Shell: the time of one authorization check, with up to 10,000 ACLs.

    python -m bench.authorizer            a few seconds

Back of an envelope: a broker that answers 20,000 requests a second on one core has 50 us for each; a check should take
a few of them at most, however many ACLs the cluster has. "first" is a check whose answer is not remembered, "again" one
that repeats.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from barnabas.protocol.security.acl_index import AclIndex
from barnabas.protocol.security.acls import AclBinding, AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.security.operations import AclOperation

CHECKS = 10_000
ROUNDS = 3
SHAPES = ("users x topics", "one topic, many users", "prefixes of all lengths")


def build_acls(shape: str, count: int) -> list[AclBinding]:
    allow, topic = AclPermissionType.ALLOW, AclResourceType.TOPIC
    literal, prefixed = PatternType.LITERAL, PatternType.PREFIXED
    match shape:
        case "users x topics":
            return [
                AclBinding(topic, f"topic-{i % 1000}", literal, f"User:u{i // 1000}", "*", AclOperation.READ, allow)
                for i in range(count)
            ]
        case "one topic, many users":
            return [
                AclBinding(topic, "topic-1", literal, f"User:u{i}", "*", AclOperation.READ, allow) for i in range(count)
            ]
        case _:
            return [
                AclBinding(topic, ("topic-" * 40)[: 1 + i % 200], prefixed, f"User:u{i}", "*", AclOperation.READ, allow)
                for i in range(count)
            ]


def first(index: AclIndex[int]) -> float:
    """Seconds for each check of a name that was not checked before."""
    began = time.perf_counter()
    for i in range(CHECKS):
        index.decide("User:u5", "10.0.0.1", AclOperation.READ, AclResourceType.TOPIC, f"topic-{i}")
    return (time.perf_counter() - began) / CHECKS


def again(index: AclIndex[int]) -> float:
    """Seconds for each check of a name that was checked before."""
    began = time.perf_counter()
    for _ in range(CHECKS):
        index.decide("User:u5", "10.0.0.1", AclOperation.READ, AclResourceType.TOPIC, "topic-1")
    return (time.perf_counter() - began) / CHECKS


def best(run: Callable[[AclIndex[int]], float], acls: list[AclBinding]) -> float:
    return min(run(AclIndex(enumerate(acls))) for _ in range(ROUNDS))


def main() -> None:
    out = sys.stdout.write
    out(f"{'ACLs':28s}{'count':>8s}{'first, us':>12s}{'again, us':>12s}\n")
    for shape in SHAPES:
        for count in (10, 10_000):
            acls = build_acls(shape, count)
            out(f"{shape:28s}{count:8d}{best(first, acls) * 1e6:12.2f}{best(again, acls) * 1e6:12.2f}\n")


if __name__ == "__main__":
    main()
