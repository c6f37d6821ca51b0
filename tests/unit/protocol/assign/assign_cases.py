"""Cases for the assignors: their text form, and a generator of random ones (`python -m ... > cases`)."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.member import Assignment, MemberSubscription, Topics
from barnabas.protocol.assign.sticky import Memory, encode_memory


@dataclass
class Case:
    assignor: str
    topics: dict[str, int] = field(default_factory=dict)
    racks: dict[TopicPartition, frozenset[str]] = field(default_factory=dict)
    members: dict[str, MemberSubscription] = field(default_factory=dict)
    expected: Assignment = field(default_factory=dict)

    def inputs(self) -> tuple[Topics, dict[str, MemberSubscription]]:
        return Topics(self.topics, self.racks or None), self.members

    def lines(self) -> Iterator[str]:
        yield f"case {self.assignor}"
        for topic, count in self.topics.items():
            yield f"topic {topic} {count}"
        for tp, racks in self.racks.items():
            yield f"racks {tp} {','.join(sorted(racks))}"
        for member_id, s in self.members.items():
            words = [f"member {member_id} topics={','.join(s.topics)}"]
            if s.owned:
                words.append("owned=" + ",".join(map(str, s.owned)))
            if s.generation is not None:
                words.append(f"generation={s.generation}")
            if s.instance_id is not None:
                words.append(f"instance={s.instance_id}")
            if s.rack is not None:
                words.append(f"rack={s.rack}")
            if s.user_data is not None:
                words.append(f"data={s.user_data.hex()}")
            yield " ".join(words)
        for member_id, partitions in self.expected.items():
            yield " ".join(["->", member_id, *map(str, partitions)])
        yield ""


def partition(text: str) -> TopicPartition:
    topic, number = text.rsplit("-", 1)
    return TopicPartition(topic, int(number))


def read_cases(text: str) -> Iterator[Case]:
    for block in text.strip().split("\n\n"):
        case = Case("")
        for line in block.splitlines():
            kind, name, *rest = line.split(" ")
            match kind:
                case "case":
                    case.assignor = name
                case "topic":
                    case.topics[name] = int(rest[0])
                case "racks":
                    case.racks[partition(name)] = frozenset(rest[0].split(","))
                case "member":
                    options = dict(word.split("=", 1) for word in rest)
                    case.members[name] = MemberSubscription(
                        tuple(filter(None, options["topics"].split(","))),
                        tuple(partition(p) for p in options.get("owned", "").split(",") if p),
                        int(options["generation"]) if "generation" in options else None,
                        options.get("instance"),
                        options.get("rack"),
                        bytes.fromhex(options["data"]) if "data" in options else None,
                    )
                case "->":
                    case.expected[name] = [partition(p) for p in rest]
        yield case


def random_case(rng: random.Random, assignor: str) -> Case:
    case = Case(assignor)
    for i in range(rng.randint(1, 4)):
        case.topics[f"topic{i}" if rng.random() < 0.8 else f"orders.v{i}"] = rng.randint(1, 9)
    names = list(case.topics)
    with_racks = rng.random() < 0.3
    if with_racks:
        for topic, count in case.topics.items():
            for p in range(count):
                case.racks[TopicPartition(topic, p)] = frozenset(rng.sample(["r0", "r1", "r2"], rng.randint(1, 2)))
    alike = rng.random() < 0.6
    everything = tuple(rng.sample(names, rng.randint(1, len(names))))
    generation = rng.randint(0, 3)
    free = [TopicPartition(topic, p) for topic in names for p in range(case.topics[topic])]
    rng.shuffle(free)
    remembers = rng.random() < 0.7
    for i in range(rng.randint(1, 14)):
        topics = everything if alike else tuple(rng.sample(names, rng.randint(1, len(names))))
        owned = tuple(free.pop() for _ in range(min(len(free), rng.randint(0, 5)))) if remembers else ()
        if rng.random() < 0.05 and owned:
            free.append(owned[0])  # somebody else will claim it, too
        mine = generation - (rng.random() < 0.15)
        sticky = assignor == "sticky" and rng.random() < 0.95
        cooperative = assignor == "cooperative-sticky"
        case.members[f"consumer-{rng.getrandbits(24):06x}-{i}"] = MemberSubscription(
            topics,
            owned if cooperative else (),
            mine if cooperative and remembers else None,
            f"i{rng.randint(0, 99)}-{i}" if rng.random() < 0.2 else None,
            rng.choice(["r0", "r1", "r2"]) if with_racks and rng.random() < 0.9 else None,
            encode_memory(Memory(owned, mine)) if sticky and remembers else None,
        )
    subscribed = {topic for s in case.members.values() for topic in s.topics}
    case.topics = {topic: count for topic, count in case.topics.items() if topic in subscribed}
    case.racks = {tp: racks for tp, racks in case.racks.items() if tp.topic in subscribed}
    return case


if __name__ == "__main__":
    rng = random.Random(int(sys.argv[1]))
    for _ in range(int(sys.argv[2])):
        for name in ("range", "roundrobin", "sticky", "cooperative-sticky"):
            print("\n".join(random_case(rng, name).lines()))
