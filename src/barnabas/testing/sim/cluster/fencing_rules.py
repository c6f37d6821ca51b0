"""Machine: the rules for fencing brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.testing.sim.cluster.rule import Rule
from barnabas.testing.sim.cluster.view import broker_epoch_of, broker_state_of, has_committed_all, sessions_of

if TYPE_CHECKING:
    from barnabas.testing.sim.cluster.cluster import SimCluster
    from barnabas.testing.sim.cluster.observation import ClusterObservation
    from barnabas.testing.sim.node import SimNode


_FENCING_MS: Final = 1_000
"""A controller that runs, and has nothing else to do, fences a silent broker within this time."""
_SLOW_S: Final = 0.1
"""Heartbeats over a link with a longer delay may arrive late."""


class RunningBrokerIsNotFenced(Rule):
    """A broker that runs, listens, and has sent a heartbeat to the active controller within its session time-out is
    not fenced, unless the broker shuts down or has lost a log directory. A heartbeat that comes after the session is
    over may be too late: the controller may already have written the record that fences the broker."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._controller: object = None
        """The sessions of the active controller at the last observation."""
        self._heartbeats: dict[int, tuple[int, int]] = {}
        """The epoch of each broker, and the time of its last heartbeat that the active controller has received, or, if
        there is none, the time at which this controller became active."""
        self._late: dict[int, None] = {}
        """The brokers that have sent a heartbeat after their session was over, while the controller has uncommitted
        records: one of them may fence the broker, however many heartbeats arrive before it is committed."""
        self._active: dict[int, int] = {}
        """The epochs of the brokers that were not fenced at the last observation."""

    def observe(self, seen: ClusterObservation) -> None:
        if seen.image is None:
            return
        controller = self.cluster.active_controller()
        sessions = None if controller is None else sessions_of(controller)
        same = sessions is not None and sessions is self._controller
        for broker in seen.image.brokers:
            if broker.fenced and self._active.get(broker.broker_id) == broker.epoch and same:
                self._check(broker.broker_id, broker.epoch)
        self._active = {broker.broker_id: broker.epoch for broker in seen.image.brokers if not broker.fenced}
        if not same:
            self._heartbeats.clear()
            self._late.clear()
        self._controller = sessions
        if sessions is not None:
            for broker_id, session in sessions._sessions.items():
                epoch, before_ms = self._heartbeats.get(broker_id, (session.broker_epoch, session.heartbeat_ms))
                if epoch == session.broker_epoch and session.heartbeat_ms - before_ms >= self._timeout_ms(broker_id):
                    self._late[broker_id] = None
                self._heartbeats[broker_id] = session.broker_epoch, session.heartbeat_ms
            if controller is not None and has_committed_all(controller):
                self._late.clear()

    def _check(self, broker_id: int, epoch: int) -> None:
        node = self.cluster.broker(broker_id)
        heartbeat_epoch, heartbeat_ms = self._heartbeats.get(broker_id, (-1, 0))
        if node is None or heartbeat_epoch != epoch or not self._runs(node, epoch):
            return
        silent_ms = int(self.cluster.world.loop.time() * 1000) - heartbeat_ms
        timeout_ms = self._timeout_ms(broker_id)
        if silent_ms < timeout_ms and broker_id not in self._late:
            self.broken(
                f"{node.name} of epoch {epoch} was fenced {silent_ms} ms after its last heartbeat; it runs, and "
                f"broker.session.timeout.ms is {timeout_ms}"
            )

    def _timeout_ms(self, broker_id: int) -> int:
        node = self.cluster.broker(broker_id)
        return 0 if node is None else int(node.config["broker.session.timeout.ms"])

    def _runs(self, node: SimNode, epoch: int) -> bool:
        state = broker_state_of(node)
        return (
            node.ready
            and not node.paused
            and not node.excused
            and state == "RUNNING"
            and broker_epoch_of(node) == epoch
        )


class SilentBrokerIsFenced(Rule):
    """The active controller fences a broker whose last heartbeat is older than its session time-out."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._sessions: object = None
        """The sessions of the active controller at the last observation."""
        self._overdue: dict[int, tuple[int, int]] = {}
        """For each broker that should have been fenced: the time of its last heartbeat, and the time since which the
        controller has run and has had no uncommitted records."""

    def observe(self, seen: ClusterObservation) -> None:
        controller = self.cluster.active_controller()
        sessions = None if controller is None else sessions_of(controller)
        if seen.image is None or controller is None or sessions is None or controller.paused:
            self._overdue.clear()
            return
        if sessions is not self._sessions:
            self._overdue.clear()
            self._sessions = sessions
        now_ms = int(self.cluster.world.loop.time() * 1000)
        free = has_committed_all(controller)
        overdue: dict[int, tuple[int, int]] = {}
        for broker in seen.image.brokers:
            session = sessions._sessions.get(broker.broker_id)
            if broker.fenced or session is None or session.broker_epoch != broker.epoch:
                continue
            if now_ms - session.heartbeat_ms < self._timeout_ms(broker.broker_id) + _FENCING_MS:
                continue
            heartbeat_ms, since_ms = self._overdue.get(broker.broker_id, (session.heartbeat_ms, now_ms))
            if heartbeat_ms != session.heartbeat_ms or not free:
                since_ms = now_ms  # a controller that waits for a commit does not decide on the next broker yet
            if now_ms - since_ms > _FENCING_MS:
                self.broken(
                    f"broker {broker.broker_id} of epoch {broker.epoch} is not fenced {now_ms - session.heartbeat_ms} "
                    f"ms after its last heartbeat to {controller.name}"
                )
            overdue[broker.broker_id] = session.heartbeat_ms, since_ms
        self._overdue = overdue

    def _timeout_ms(self, broker_id: int) -> int:
        node = self.cluster.broker(broker_id)
        return 0 if node is None else int(node.config["broker.session.timeout.ms"])


class DeafBrokerIsSilent(Rule):
    """The controller gets no heartbeat of a broker to which it cannot send: the broker's connection is closed when a
    heartbeat has no response. Otherwise the controller would never fence a leader that no other host can reach."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._sessions: object = None
        """The sessions of the active controller at the last observation."""
        self._deaf: dict[int, int] = {}
        """For each broker that no packet of the active controller reaches: the time since which that is so."""

    def observe(self, seen: ClusterObservation) -> None:
        controller = self.cluster.active_controller()
        sessions = None if controller is None else sessions_of(controller)
        if controller is None or sessions is None or sessions is not self._sessions:
            self._sessions = sessions
            self._deaf.clear()
            return
        now_ms = int(self.cluster.world.loop.time() * 1000)
        network = self.cluster.world.network
        for node in self.cluster.brokers:
            way = network.link(node.name, controller.name)
            late = way.cut or way.loss > 0 or way.delay_max > _SLOW_S  # an old heartbeat may arrive later
            if node is controller or late or not network.link(controller.name, node.name).cut:
                self._deaf.pop(node.node_id, None)
                continue
            since_ms = self._deaf.setdefault(node.node_id, now_ms)
            session = sessions._sessions.get(node.node_id)
            if session is not None and session.heartbeat_ms - since_ms > self._limit_ms(node):
                self.broken(
                    f"{controller.name} has a heartbeat of {node.name} {session.heartbeat_ms - since_ms} ms after its "
                    "last packet could reach that broker"
                )

    @staticmethod
    def _limit_ms(node: SimNode) -> int:
        """The next heartbeat may be due, and waits for its response for half of the session time-out."""
        interval_ms, session_ms = (
            int(node.config[f"broker.{name}.ms"]) for name in ("heartbeat.interval", "session.timeout")
        )
        return interval_ms + session_ms // 2 + _FENCING_MS


class FencedBrokerLeadsNothing(Rule):
    """The decision that fences a broker gives each of its partitions another leader, or none."""

    def observe(self, seen: ClusterObservation) -> None:
        if seen.image is None:
            return
        fenced = {broker.broker_id for broker in seen.image.brokers if broker.fenced}
        for topic in seen.image.topics if fenced else ():
            for index, partition in enumerate(topic.partitions):
                if partition.leader in fenced:
                    self.broken(f"{topic.name}-{index} is led by broker {partition.leader}, which is fenced")


class EpochIsOneProcess(Rule):
    """A broker epoch belongs to one process: the next process of a broker registers with a higher epoch (KIP-903)."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._processes: dict[tuple[int, int], object] = {}
        """The incarnation id of the process with each broker id and broker epoch."""

    def observe(self, seen: ClusterObservation) -> None:
        for broker in () if seen.image is None else seen.image.brokers:
            known = self._processes.setdefault((broker.broker_id, broker.epoch), broker.incarnation_id)
            if known != broker.incarnation_id:
                self.broken(
                    f"two processes of broker {broker.broker_id} have registered with broker epoch {broker.epoch}"
                )


FENCING_RULES: tuple[type[Rule], ...] = (
    RunningBrokerIsNotFenced,
    SilentBrokerIsFenced,
    DeafBrokerIsSilent,
    FencedBrokerLeadsNothing,
    EpochIsOneProcess,
)
