"""Table: where our answers differ from Apache Kafka 4.3.1's on purpose, each with its reason.

A row is (scenario, what was asked, which field, why), the middle two as regular expressions that match in full. A row
that no longer describes a difference fails the test, so this list is as true as the last run.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Row(NamedTuple):
    scenario: str
    label: str
    path: str
    reason: str


_CRASH: Final = "Kafka trips over an unchecked value and says UNKNOWN_SERVER_ERROR; we say what is wrong, or do it."
_DOOR: Final = "Kafka refuses before it looks at the log, and leaves the log start offset out; we have it, and give it."
_CLOSES: Final = "Kafka closes the connection, as it cannot read UNKNOWN as a code; we answer INVALID_REQUEST."
_EACH: Final = "Asked twice, answered twice; Kafka's hash maps fold the two into one."
_DAMAGED: Final = "Kafka says UNKNOWN_SERVER_ERROR to a payload that does not decompress; INVALID_RECORD is the truth."
_DATA: Final = r"responses\[0\]\.partition_responses\[0\]\."
_ANY: Final = r".*"

DELIBERATE: Final[tuple[Row, ...]] = (
    # ---- the cluster and its topics
    Row(
        "api_versions", "features", _ANY, "Features come in order of their names; Kafka's order is that of a hash map."
    ),
    Row(
        "api_versions",
        "finalized",
        r"kraft\.version",
        "A node that founds a quorum by itself takes dynamic voters; Kafka is formatted with static ones here.",
    ),
    Row("api_versions", "finalized", r"streams\.version", "There are no streams groups here."),
    Row(
        "api_versions", "versions", _ANY, "What is not served is not advertised; InitProducerId 6 (KIP-939) is served."
    ),
    Row("api_versions", "a null client id", "", "The raw bytes of this answer name the port."),
    Row("metadata", "by neither", _ANY, _CRASH),
    Row("metadata", "ids and names", _ANY, "Kafka answers the ids and forgets the names."),
    Row("metadata", ".*too early", "brokers|controller_id", "Kafka leaves the brokers out of these errors."),
    Row("metadata", "v3 creates", _ANY, "We create before we answer, so the client need not come back for its topic."),
    Row("describe_topic_partitions", "empty name", _ANY, _CRASH),
    Row("create_topics", "config .*", r"topics\[\d\]\.configs\[\d+\]\.value", "The effective value, as it was read."),
    Row("create_partitions", "to 20000", _ANY, _CRASH),
    Row("delete_topics", "name, and its id", _ANY, _EACH),
    Row("elect_leaders", "type 2 .*", _ANY, "An unknown election type is refused once, at the top of the answer."),
    Row(
        "elect_leaders",
        "of all, v0",
        _ANY,
        "Where nothing had to be elected there is nothing to tell; Kafka lists names.",
    ),
    # ---- records
    Row("produce_answers", "null", _ANY, "Kafka 4.3.1 never answers a null record set; the producer waits for ever."),
    Row("produce_answers", "empty|cut to .*|two batches|magic [01]|length .*", _DATA + "log_start_offset", _DOOR),
    Row("idempotence", "two idempotent batches", _DATA + "log_start_offset", _DOOR),
    Row(
        "produce_answers",
        "trailing bytes|length 49",
        _DATA + "(error_code|base_offset)",
        "Kafka drops an incomplete second batch without a word; we refuse it, so that nobody believes it was written.",
    ),
    Row("produce_answers", "unknown codec|codec .*", _DATA + "error_code", _DAMAGED),
    Row(
        "produce_answers",
        "append-time flag",
        _DATA + _ANY,
        "Producers may not claim the broker's timestamp type; Kafka takes the batch and keeps the claim.",
    ),
    Row(
        "produce_answers",
        "a record's offset",
        _DATA + _ANY,
        "Kafka takes records whose offset deltas do not count up (only in uncompressed batches); readers stumble.",
    ),
    Row(
        "produce_answers",
        "a partition twice|a topic twice|the odd ones.*",
        _ANY,
        f"{_EACH} Kafka loses one of the two batches; the offsets afterwards differ by what we refused above.",
    ),
    Row(
        "idempotence",
        "negative epoch",
        "error_code",
        "A producer id without an epoch is a bad batch, not a fenced one.",
    ),
    Row("fetch_answers", ".*limit -1.*", _ANY, "Kafka fails with a negative limit; we read one batch, as with 0."),
    Row("fetch_answers", "isolation 7", _ANY, f"{_CRASH} An unknown level reads like read_uncommitted."),
    Row(
        "fetch_sessions",
        "topic deleted, by id",
        _ANY,
        "An id that is gone is unknown as an id; Kafka remembers its name.",
    ),
    Row("list_offsets", "isolation 9", _ANY, _CRASH),
    Row("list_offsets", "a (partition|topic) twice", _ANY, _EACH),
    Row("delete_records", "twice", _ANY, _EACH),
    Row("leader_epochs", "epoch -2.*", _ANY, "No epoch is negative; Kafka finds one that ends at 0."),
    # ---- configs
    Row("describe_configs", r"broker, barnabas\..*", "", "Kafka has no config of this name."),
    Row("describe_configs", r"broker, mirror\.state\.topic\..*", "", "A draft of Kafka's (KIP-1279) has them."),
    Row("describe_configs", "broker, advertised.listeners", "config_source", "Set by the test for Kafka only."),
    Row("describe_configs", "broker, controller.quorum.voters", "config_source", "Set by the test for Kafka only."),
    Row("incremental_alter", "operation .*", _ANY, _CRASH),
    Row("incremental_alter", "broker, out of range", _ANY, "Kafka divides by zero."),
    Row("incremental_alter|legacy_alter", "broker 7", _ANY, "Told by the controller: there is no broker 7 at all."),
    Row("incremental_alter", "a resource twice", _ANY, "One resource, one answer (here Kafka gives two)."),
    # ---- ACLs
    Row("(create|describe|delete)_acls", ".* 0|.* 0 of .*|name .*, pattern 0|topic .*, pattern 0", "", _CLOSES),
    Row("create_acls", "(type|pattern|operation|permission) [12]( of .*)?", r"results\[0\]\.error_code", _CRASH),
    Row(
        "create_acls",
        "principal ':(alice)?'|host ''",
        r"results\[0\]\.error_code",
        "Kafka makes an ACL that is for no client: every principal has a type, and every connection an address.",
    ),
    Row("create_acls", "all that were created", _ANY, "Among them are the ACLs for no client, which only Kafka has."),
    Row(
        "describe_acls",
        ".* (9|99)",
        "error_code",
        "Kafka finds no ACL for a code that it does not know; we say that it is unknown, as Kafka does to DeleteAcls.",
    ),
    # ---- quotas
    Row("alter_client_quotas", ".* inf", _ANY, "A quota that limits nothing is none: Kafka stores it."),
    Row(
        "alter_client_quotas",
        "address '(1.2.3|10|localhost)'",
        _ANY,
        "Kafka's brokers resolve names and short forms, each by itself; an address has all its parts.",
    ),
    Row("alter_client_quotas", "entity .*'twice'.*", _ANY, "Kafka takes the last of two names of one type."),
)
