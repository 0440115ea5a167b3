"""The options of Spark's Kafka source and sink, and the settings of Kafka's clients, with what we have in their place.

For errors (`options`) and for the table of docs/spark.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal

Use = Literal["source", "sink"]


@dataclass(frozen=True, slots=True)
class Counterpart:
    """kafka: names as Kafka spells them; one that ends with * is a prefix.  The first row that fits counts.

    source, sink: our option, empty where there is none.  why: what a user of Kafka would not expect.
    """

    kafka: tuple[str, ...]
    source: str = ""
    sink: str = ""
    why: str = ""

    def answer(self, use: Use) -> str:
        """The remedy where the option is given to our source or sink."""
        ours, others = (self.source, self.sink) if use == "source" else (self.sink, self.source)
        if ours:
            return f'did you mean "{ours}"?'
        if others:
            return f'it belongs to the {"sink" if use == "source" else "source"}, as "{others}"; leave it out'
        return f"there is none here: {self.why.replace('`', '')}; leave it out"


_READS = "the rows are read from the log"
_ONCE = "every row is published once, whatever fails and however often"
COUNTERPARTS: Final = (
    Counterpart(("kafka.bootstrap.servers",), "url", "url", "`amqp://` or `amqps://`, then hosts and ports"),
    Counterpart(("subscribe",), "topic", "topic"),
    Counterpart(("subscribePattern",), "topicPattern", "", "for the whole name"),
    Counterpart(("assign",), why="a query reads all partitions of its subscription (`partitions`)"),
    Counterpart(("topic",), "topic", "topic", "of the sink: goes before the column `topic`, as Kafka's"),
    Counterpart(("groupIdPrefix", "kafka.group.id", "group.id"), "subscription", "", "the whole name, one for a query"),
    Counterpart(("startingOffsets",), "startingOffsets", "", "numbers as in the columns `partition` and `offset`"),
    Counterpart(("startingTimestamp",), "startingTimestamp", "", "by the time when a row was received"),
    Counterpart(("startingOffsetsByTimestamp",), "startingTimestamp", "", "one time for all partitions"),
    Counterpart(
        ("startingOffsetsByTimestampStrategy",),
        why="where no row is as late as `startingTimestamp`, the query begins with what comes",
    ),
    Counterpart(("endingOffsets",), "endingOffsets", "", "the same"),
    Counterpart(
        ("endingTimestamp", "endingOffsetsByTimestamp"), why="filter the batch by the column `received_at`"
    ),
    Counterpart(("failOnDataLoss",), "failOnDataLoss"),
    Counterpart(("maxOffsetsPerTrigger",), "maxRowsPerTrigger"),
    Counterpart(("minOffsetsPerTrigger",), "minRowsPerTrigger"),
    Counterpart(("maxTriggerDelay",), "maxTriggerDelay"),
    Counterpart(("minPartitions",), "minPartitions"),
    Counterpart(("maxRecordsPerPartition",), "maxTaskBytes", "", "in bytes"),
    Counterpart(
        ("includeHeaders",), "includeHeaders", "", "`binary` for Kafka's type; the sink writes the column `headers`"
    ),
    Counterpart(("kafkaConsumer.pollTimeoutMs", "fetchOffset.*"), why=f"{_READS}, not fetched from a broker"),
    Counterpart(("kafka.security.protocol",), "url", "url", "`amqps://` is TLS"),
    Counterpart(("kafka.ssl.truststore.*",), "ca", "ca", "a PEM file"),
    Counterpart(("kafka.ssl.keystore.key", "kafka.ssl.key.*"), "key", "key", "a PEM file without a password"),
    Counterpart(("kafka.ssl.keystore.*",), "certificate", "certificate", "a PEM file"),
    Counterpart(("kafka.ssl.*",), why="TLS is Python's, with its defaults"),
    Counterpart(("kafka.sasl.mechanism",), "mechanism", "mechanism"),
    Counterpart(("kafka.sasl.jaas.config",), "passwordFile", "passwordFile", "and `user`; secrets are in files"),
    Counterpart(
        ("kafka.sasl.oauthbearer.*", "kafka.sasl.login.*"), "tokenFile", "tokenFile", "it is read for each connection"
    ),
    Counterpart(("kafka.sasl.*",), "mechanism", "mechanism", "there is no Kerberos"),
    Counterpart(("kafka.auto.offset.reset",), "startingOffsets"),
    Counterpart(("kafka.client.id",), "subscription", "name", "the container-id"),
    Counterpart(("kafka.session.timeout.ms", "kafka.heartbeat.*"), "leaseTimeout", "", "with receivers apart"),
    Counterpart(("kafka.group.*", "kafka.max.poll.interval.ms", "kafka.partition.assignment.*"),
                why="partitions are spread over `receivers`"),
    Counterpart(("kafka.fetch.max.wait.ms",), "groupMs"),
    Counterpart(("kafka.fetch.min.bytes", "kafka.fetch.max.bytes", "kafka.max.partition.fetch.bytes"), "credit", "",
                "in messages"),
    Counterpart(("kafka.max.poll.records",), "maxRowsPerTrigger"),
    Counterpart(("kafka.enable.auto.commit", "kafka.auto.commit.*"), why="the checkpoint has the positions"),
    Counterpart(("kafka.isolation.level",), why="there are no transactions to wait for: accepted messages are rows"),
    Counterpart(("kafka.key.*", "kafka.value.*"), why="`value` is binary and `key` a string: cast them"),
    Counterpart(("kafka.delivery.timeout.ms", "kafka.max.block.ms"), "", "publishTimeout"),
    Counterpart(
        ("kafka.acks", "kafka.retries", "kafka.enable.idempotence", "kafka.transaction*",
         "kafka.max.in.flight.requests.per.connection"),
        why=_ONCE,
    ),
    Counterpart(("kafka.partitioner.*",), why="subscribers share a topic by the column `key`"),
    Counterpart(("kafka.*",), why="it is a setting of Kafka's clients, and what is here is AMQP"),
)  # fmt: skip


def counterpart(name: str) -> Counterpart | None:
    """Of an option of Kafka's, in any case; None: it is none."""
    for row in COUNTERPARTS:
        if any(fnmatchcase(name.lower(), each.lower()) for each in row.kafka):
            return row
    return None
