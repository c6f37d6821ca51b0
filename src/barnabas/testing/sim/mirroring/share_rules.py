"""Machine: the rule for offsets of share groups that a link copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.core.ids import SHARE_STATE_TOPIC
from barnabas.testing.sim.cluster.observation import Key
from barnabas.testing.sim.cluster.view import coordinators_of
from barnabas.testing.sim.mirroring.rules import LinkRule

if TYPE_CHECKING:
    from barnabas.testing.sim.mirroring.observation import ObservedBatches, SiteObservation
    from barnabas.testing.sim.mirroring.site import Site

_Start = tuple[str, Key, int]
"""The group, the partition, and the offset below which the group has acknowledged everything."""


class ShareOffsetsAreInTheLog(LinkRule):
    """The start offset of a share group in a mirror is not beyond the end of the mirror. When the mirror has caught up,
    it is that of the source, or the nearest one that the mirror has."""

    def __init__(self, site: Site, histories: Mapping[str, ObservedBatches]) -> None:
        super().__init__(site, histories)
        self._ends: dict[Key, int] = {}
        self.compared = 0
        """The offsets that were compared with the source's."""

    def observe(self, seen: SiteObservation) -> None:
        for replica in seen.replicas:
            self._ends[replica.key] = max(self._ends.get(replica.key, 0), replica.log.log_end_offset)
        for group, key, offset in share_starts(self.site):
            if offset > self._ends.get(key, 0):
                self.broken(f"share group {group} begins at {offset} of {seen.names.get(key)}, which has never had it")

    def at_rest(self, seen: SiteObservation, source: SiteObservation, keys: Sequence[Key]) -> None:
        here = {(group, key): offset for group, key, offset in share_starts(self.site)}
        for group, key, offset in share_starts(self.site.other):
            if key not in keys:
                continue
            replica = seen.leaders[key]
            expected = max(replica.log.log_start_offset, min(offset, replica.partition.high_watermark))
            self.compared += 1
            if here.get((group, key)) != expected:
                self.broken(
                    f"share group {group} begins at {here.get((group, key))} of {seen.names[key]}, and at {offset} in "
                    f"the source, which is {expected} here"
                )


def share_starts(site: Site) -> Iterator[_Start]:
    """The committed start offsets of share groups, as far as their coordinators are loaded."""
    for node in site.cluster.brokers:
        for host in coordinators_of(node):
            if host.tp.topic == SHARE_STATE_TOPIC and host.caught_up:
                for key, state in host.shard.states.committed().items():
                    if state.start_offset >= 0:
                        yield key.group_id, (key.topic_id.int, key.partition), state.start_offset
