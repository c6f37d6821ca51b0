"""Shell: checks the rules of links many times a second, and when the mirrors have caught up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.testing.sim.cluster.coordinator_rules import CommittedViewFollows
from barnabas.testing.sim.cluster.observation import ClusterObservation
from barnabas.testing.sim.errors import CorrectnessError
from barnabas.testing.sim.mirroring.observation import ObservedBatches, SiteObservation
from barnabas.testing.sim.mirroring.rules import RULES, LinkRule
from barnabas.testing.sim.mirroring.share_rules import ShareOffsetsAreInTheLog

if TYPE_CHECKING:
    from barnabas.core.ids import TopicPartition
    from barnabas.testing.sim.mirroring.programs import Programs
    from barnabas.testing.sim.mirroring.site import Site
    from barnabas.testing.sim.process import Process

R = TypeVar("R", bound=LinkRule)
_CHECK_INTERVAL_S: Final = 0.1


class LinkWatch:
    """Checks the rules of both sites. A violation raises CorrectnessError out of the loop."""

    def __init__(self, sites: Sequence[Site], programs: Sequence[Programs]) -> None:
        self._sites = sites
        self._programs = programs
        self._histories = {site.name: ObservedBatches() for site in sites}
        self._rules = {
            site.name: [rule(site, self._histories) for rule in (*RULES, ShareOffsetsAreInTheLog)] for site in sites
        }
        self._views = [CommittedViewFollows(site.cluster) for site in sites]
        self._loop = sites[0].world.loop
        self._next_check = 0.0
        self._loop.after_step = self._step

    def rule(self, site: Site, kind: type[R]) -> R:
        return next(rule for rule in self._rules[site.name] if isinstance(rule, kind))

    def _step(self, process: Process | None) -> None:
        if self._loop.time() >= self._next_check:
            self.check()

    def check(self) -> list[SiteObservation]:
        """Observes both clusters now, and checks every rule."""
        self._next_check = self._loop.time() + _CHECK_INTERVAL_S
        observed = [SiteObservation(site) for site in self._sites]
        for seen in observed:
            self._histories[seen.site.name].observe(seen)
        for seen in observed:
            for rule in self._rules[seen.site.name]:
                rule.observe(seen)
        for view in self._views:
            view.observe(ClusterObservation(view.cluster))
        for programs in self._programs:
            if programs.known.too_early:
                raise CorrectnessError(
                    f"MirrorsRefuseWrites is broken: {programs.known.too_early[0]} was acknowledged\n"
                    "(A mirror acknowledges no write before its topic is stopped.)"
                )
        return observed

    def at_rest(self, site: Site, partitions: Sequence[TopicPartition]) -> None:
        """Checks the rules for mirrors of a site that have caught up with sources to which nobody writes."""
        observed = {seen.site.name: seen for seen in self.check()}
        here, there = observed[site.name], observed[site.other.name]
        keys = [key for key in here.tasks if here.names[key] in partitions]
        for rule in self._rules[site.name]:
            rule.at_rest(here, there, keys)
