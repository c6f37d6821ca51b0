"""Machine: finds G1c, circular information flow: operation A read a write of B, and B read, directly or through other
operations, a write of A.

Edges go from the operation that wrote a value to the operations that read the value. No order of the operations
explains a cycle of such edges, so that cycle is forbidden; Jepsen found such cycles in real systems (docs of
`jepsen.tests.kafka`). The order of writes within a partition gives further edges. A cycle that needs those edges is
legal in a log, because the records of two transactions may interleave; such cycles are only counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import pairwise

from barnabas.testing.histories.anomalies import Anomaly
from barnabas.testing.histories.facts import HistoryFacts
from barnabas.testing.histories.history import ClientOperation, Key, OperationOutcome
from barnabas.testing.histories.report import AnomalyFinding

Graph = dict[int, dict[int, str]]
"""Operation (by `invoked`) -> the operations that must come after that one, each with the reason."""


def cycles(facts: HistoryFacts) -> Iterator[AnomalyFinding]:
    operations = {operation.invoked: operation for operation in facts.history.operations}
    graph: Graph = {}
    _add_reads(facts, graph)
    circular = components(graph)
    for component in circular:
        yield AnomalyFinding(Anomaly.INFORMATION_CYCLE, _describe(graph, component, operations))
    reported = {node for component in circular for node in component}
    _add_write_order(facts, graph)
    for component in components(graph):
        if reported.isdisjoint(component):
            yield AnomalyFinding(Anomaly.WRITE_CYCLE, _describe(graph, component, operations))


def _add_reads(facts: HistoryFacts, graph: Graph) -> None:
    for operation in facts.history.operations:
        for poll in operation.polls:
            write = facts.writes.get(poll.value)
            if write is None or write.operation is operation or write.operation.outcome is OperationOutcome.FAIL:
                continue  # phantoms, precommitted and aborted reads have names of their own
            graph.setdefault(write.operation.invoked, {}).setdefault(
                operation.invoked, f"wrote {poll.value!r}, which was polled by"
            )


def _add_write_order(facts: HistoryFacts, graph: Graph) -> None:
    placed: dict[Key, list[tuple[int, ClientOperation]]] = {}
    for (key, value), offsets in facts.offsets.items():
        write = facts.writes.get(value)
        if write is not None and write.operation.outcome is not OperationOutcome.FAIL:
            placed.setdefault(key, []).extend((offset, write.operation) for offset in offsets)
    for key, row in placed.items():
        row.sort(key=lambda item: item[0])
        for (_, before), (offset, after) in pairwise(row):
            if before is not after:
                why = f"wrote to {key} just before offset {offset} of"
                graph.setdefault(before.invoked, {}).setdefault(after.invoked, why)


def components(graph: Mapping[int, Mapping[int, str]]) -> list[list[int]]:
    """Strongly connected components of two nodes or more (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(graph.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, successors = work[-1]
            for successor in successors:
                if successor not in index:
                    index[successor] = low[successor] = len(index)
                    stack.append(successor)
                    on_stack.add(successor)
                    work.append((successor, iter(graph.get(successor, ()))))
                    break
                if successor in on_stack:
                    low[node] = min(low[node], index[successor])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    cut = stack.index(node)
                    component = stack[cut:]
                    del stack[cut:]
                    on_stack.difference_update(component)
                    if len(component) > 1:
                        found.append(sorted(component))
    return found


def _describe(graph: Graph, component: list[int], operations: Mapping[int, ClientOperation]) -> str:
    circle = _shortest_circle(graph, component)
    steps = [f"{operations[a]} {graph[a][b]}" for a, b in pairwise(circle)]
    return "; ".join([*steps, f"{operations[circle[-1]]} again"])


def _shortest_circle(graph: Graph, component: list[int]) -> list[int]:
    """A shortest path inside the component from its first node back to that node."""
    start, inside = component[0], set(component)
    came_from: dict[int, int] = {}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        for successor in graph.get(node, ()):
            if successor == start:
                circle = [start, node]
                while node != start:
                    node = came_from[node]
                    circle.append(node)
                return circle[::-1]
            if successor in inside and successor not in came_from:
                came_from[successor] = node
                waiting.append(successor)
    raise AssertionError("a strongly connected component has a circle through each of its nodes")
