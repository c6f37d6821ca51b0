"""Shell: which topics that flows read do not exist yet. A thread asks the brokers, so that the other flows go on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from barnabas.core.errors import BarnabasError
from barnabas.spark.connection import connect
from barnabas.spark.given_options import GivenOptions
from barnabas.spark.pipelines.links import topics_read


def missing_text(topics: Sequence[str]) -> str:
    """That a flow waits for topics, as text."""
    what = f"the topic {topics[0]}, which does" if len(topics) == 1 else f"the topics {', '.join(topics)}, which do"
    return f"waits for {what} not exist yet, and reads from the beginning once there are records"


def missing_topics(sources: Iterable[Mapping[str, str]]) -> list[str]:
    """The topics that sources with these options name, and that do not exist. Raises BarnabasError if the brokers
    cannot be asked."""
    missing: set[str] = set()
    for options in sources:
        read = topics_read(options)
        if read is not None and read.names:
            client = connect(GivenOptions(options).client_settings())
            client.reach()
            missing |= {*read.names} - {tp.topic for tp in client.partitions(read.subscription)}
    return sorted(missing)


class TopicChecks:
    """The missing topics of each flow of a run."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "barnabas-topics")
        self._asked: dict[str, Future[list[str]]] = {}
        self._missing: dict[str, list[str]] = {}

    def ask(self, flow: str, sources: Sequence[Mapping[str, str]]) -> None:
        """Ask once for the topics of a flow."""
        if sources and flow not in self._asked:
            self._asked[flow] = self._thread.submit(missing_topics, sources)

    def answers(self) -> Iterator[tuple[str, list[str]]]:
        """The flows whose topics turn out to be missing. Errors are left to the queries, which ask the same brokers."""
        for flow, answer in self._asked.items():
            if flow not in self._missing and answer.done():
                error = answer.exception()
                if error is not None and not isinstance(error, BarnabasError):
                    raise error
                self._missing[flow] = [] if error is not None else answer.result()
                if self._missing[flow]:
                    yield flow, self._missing[flow]

    def of(self, flow: str, seen: Collection[str]) -> list[str]:
        """The topics for which a flow waits: those that were missing when it began, without those that its query has
        `seen` since."""
        return [topic for topic in self._missing.get(flow, ()) if topic not in seen]

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
