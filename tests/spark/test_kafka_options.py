"""Each option that Kafka's users know has an answer: ours, or why there is none."""

from __future__ import annotations

import re

import pytest

from onceway.spark.errors import OptionError, SinkOptionError
from onceway.spark.kafka import COUNTERPARTS, counterpart
from onceway.spark.options import OPTIONS, SINK_OPTIONS, sink_options, source_options

# of Spark's Kafka source and sink (its integration guide; maxRecordsPerPartition since 4.0)
SPARK = """
assign subscribe subscribePattern kafka.bootstrap.servers startingTimestamp startingOffsetsByTimestamp startingOffsets
endingTimestamp endingOffsetsByTimestamp endingOffsets failOnDataLoss kafkaConsumer.pollTimeoutMs fetchOffset.numRetries
fetchOffset.retryIntervalMs maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay minPartitions groupIdPrefix
kafka.group.id includeHeaders startingOffsetsByTimestampStrategy maxRecordsPerPartition topic
"""
# of Kafka's clients (ConsumerConfig, ProducerConfig, SslConfigs, SaslConfigs of Kafka 4.1.0)
CLIENTS = """
bootstrap.servers client.dns.lookup group.id group.instance.id group.protocol group.remote.assignor session.timeout.ms
heartbeat.interval.ms partition.assignment.strategy max.poll.interval.ms max.poll.records enable.auto.commit
auto.commit.interval.ms auto.offset.reset fetch.min.bytes fetch.max.bytes fetch.max.wait.ms max.partition.fetch.bytes
check.crcs client.id client.rack isolation.level allow.auto.create.topics exclude.internal.topics key.deserializer
value.deserializer interceptor.classes metadata.max.age.ms metadata.max.idle.ms metadata.recovery.strategy
metadata.recovery.rebootstrap.trigger.ms metric.reporters metrics.num.samples metrics.sample.window.ms
metrics.recording.level enable.metrics.push send.buffer.bytes receive.buffer.bytes reconnect.backoff.ms
reconnect.backoff.max.ms retry.backoff.ms retry.backoff.max.ms request.timeout.ms default.api.timeout.ms
connections.max.idle.ms socket.connection.setup.timeout.ms socket.connection.setup.timeout.max.ms
security.protocol security.providers config.providers
acks retries enable.idempotence transactional.id transaction.timeout.ms transaction.two.phase.commit.enable
max.in.flight.requests.per.connection delivery.timeout.ms max.block.ms max.request.size batch.size linger.ms
buffer.memory compression.type compression.gzip.level compression.lz4.level compression.zstd.level key.serializer
value.serializer partitioner.class partitioner.ignore.keys partitioner.adaptive.partitioning.enable
partitioner.availability.timeout.ms
ssl.protocol ssl.provider ssl.cipher.suites ssl.enabled.protocols ssl.keystore.type ssl.keystore.location
ssl.keystore.password ssl.keystore.key ssl.keystore.certificate.chain ssl.key.password ssl.truststore.type
ssl.truststore.location ssl.truststore.password ssl.truststore.certificates ssl.keymanager.algorithm
ssl.trustmanager.algorithm ssl.endpoint.identification.algorithm ssl.secure.random.implementation
ssl.engine.factory.class
sasl.mechanism sasl.jaas.config sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class
sasl.kerberos.service.name sasl.kerberos.kinit.cmd sasl.kerberos.ticket.renew.window.factor
sasl.kerberos.ticket.renew.jitter sasl.kerberos.min.time.before.relogin sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.login.refresh.min.period.seconds sasl.login.refresh.buffer.seconds
sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.retry.backoff.ms sasl.login.retry.backoff.max.ms
sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.clock.skew.seconds
sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
"""
KAFKA = list(dict.fromkeys([*SPARK.split(), *(f"kafka.{name}" for name in CLIENTS.split())]))
ANSWER = re.compile(
    r'did you mean "\w+"\?|it belongs to the (source|sink), as "\w+"; leave it out|there is none here: .+'
)
NEEDED = {"url": "amqp://h", "walLocation": "/log", "outboxLocation": "/outbox", "topic": "t", "subscription": "s"}


@pytest.mark.parametrize("kind", ["source", "sink"])
def test_each_of_kafkas_options_is_answered_by_ours_or_by_why_there_is_none(kind: str) -> None:
    read, refused, ours = (
        (source_options, OptionError, OPTIONS) if kind == "source" else (sink_options, SinkOptionError, SINK_OPTIONS)
    )
    names = {option.name for option in ours}
    needed = {name: value for name, value in NEEDED.items() if name in names}
    asked = [name for name in KAFKA if name not in names]
    with pytest.raises(refused) as caught:
        read({**needed, **{name.lower(): "x" for name in asked}}, "stream")
    said = str(caught.value).splitlines()
    for name, line in zip(asked, said, strict=True):
        option, _, remedy = line.partition(": is unknown; ")
        assert option == f"option {name.lower()}"
        assert ANSWER.fullmatch(remedy), line
        assert set(re.findall(r'did you mean "(\w+)"', remedy)) <= names


def test_the_table_names_options_that_there_are_and_nothing_twice() -> None:
    sources, sinks = ({option.name for option in options} for options in (OPTIONS, SINK_OPTIONS))
    assert {row.source for row in COUNTERPARTS} <= {"", *sources}
    assert {row.sink for row in COUNTERPARTS} <= {"", *sinks}
    assert all(row.why or row.source or row.sink for row in COUNTERPARTS)
    assert {row for name in KAFKA if (row := counterpart(name))} | {counterpart("group.id")} == set(COUNTERPARTS)
    assert counterpart("credit") is None


def test_what_is_ours_goes_before_what_is_kafkas() -> None:
    assert source_options({**{name: NEEDED[name] for name in ("url", "topic", "subscription", "walLocation")},
                           "failOnDataLoss": "false"}, "stream").fail_on_data_loss is False  # fmt: skip
    with pytest.raises(OptionError, match=r'option subscribe: is unknown; did you mean "topic"\?$'):
        source_options({"walLocation": "/log", "subscribe": "orders"}, "batch")
    with pytest.raises(
        SinkOptionError, match=r"kafka.acks: is unknown; there is none here: every row is published once"
    ):
        sink_options({"url": "amqp://h", "outboxLocation": "/o", "kafka.acks": "all"}, "stream")
    with pytest.raises(OptionError, match=r'it belongs to the sink, as "publishTimeout"; leave it out$'):
        source_options({"walLocation": "/log", "kafka.delivery.timeout.ms": "1"}, "batch")
