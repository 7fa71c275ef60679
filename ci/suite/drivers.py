"""The three clients behind one face: produce records, read a partition back, ask for offsets, create topics."""
import collections
import json
import subprocess
import time

import confluent_kafka as ck
import kafka
from confluent_kafka import admin as ck_admin
from kafka import admin as kp_admin

Record = collections.namedtuple("Record", "key value headers timestamp", defaults=(None, None, (), None))
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 20


class Confluent:
    """confluent-kafka, which is librdkafka: the library under most clients that are not Java."""

    name = "confluent"

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.base = {"bootstrap.servers": bootstrap, "broker.address.family": "v4", "log_level": 0,
                     "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}

    def producer(self, codec="none", acks="all", idempotent=False, **more):
        conf = dict(self.base, **{"compression.type": codec, "acks": acks, "enable.idempotence": idempotent,
                                  "linger.ms": 20, "message.timeout.ms": TIMEOUT_S * 1000, "retry.backoff.ms": 50})
        conf.update({k.replace("_", "."): v for k, v in more.items()})
        return ck.Producer(conf)

    def produce(self, topic, records, codec="none", acks="all", idempotent=False, partition=0):
        """Sends all and waits for every answer. Returns the offsets (nothing to learn with acks=0)."""
        offsets, errors = [], []

        def delivered(error, message):
            (errors if error else offsets).append(error or message.offset())

        p = self.producer(codec, acks, idempotent)
        for r in records:
            p.produce(topic, r.value, r.key, partition, on_delivery=delivered, timestamp=r.timestamp or 0,
                      headers=list(r.headers) or None)
        left = p.flush(TIMEOUT_S)
        if errors or left:
            raise AssertionError("%d unanswered, errors %s" % (left, errors[:1]))
        return offsets

    def consumer(self, **more):
        conf = dict(self.base, **{"group.id": "suite", "enable.auto.commit": False, "auto.offset.reset": "error",
                                  "check.crcs": True, "fetch.error.backoff.ms": 20})
        conf.update({k.replace("_", "."): v for k, v in more.items()})
        return ck.Consumer(conf)

    def read(self, topic, count, partition=0):
        """The first `count` records of a partition, by assignment: [(offset, Record)]."""
        c = self.consumer()
        c.assign([ck.TopicPartition(topic, partition, 0)])
        out, end = [], time.monotonic() + TIMEOUT_S
        while len(out) < count and time.monotonic() < end:
            for m in c.consume(count - len(out), 0.2):
                if m.error():
                    raise AssertionError(str(m.error()))
                out.append((m.offset(), Record(m.key(), m.value(), tuple(m.headers() or ()), m.timestamp()[1])))
        c.close()
        return out

    def ends(self, topic, partition=0):
        c = self.consumer()
        end = time.monotonic() + TIMEOUT_S
        while True:
            try:
                found = c.get_watermark_offsets(ck.TopicPartition(topic, partition), TIMEOUT_S)
                break
            except ck.KafkaException as error:  # asked again by no one else, just after a restart
                if not error.args[0].retriable() and error.args[0].code() != ck.KafkaError.NOT_LEADER_FOR_PARTITION:
                    raise
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        c.close()
        return found

    def offset_at(self, topic, timestamp, partition=0):
        c = self.consumer()
        found = c.offsets_for_times([ck.TopicPartition(topic, partition, timestamp)], TIMEOUT_S)[0]
        c.close()
        if found.error:
            raise AssertionError(str(found.error))
        return None if found.offset < 0 else found.offset

    def create(self, topic, partitions=1, config=None):
        a = ck_admin.AdminClient(self.base)
        a.create_topics([ck_admin.NewTopic(topic, partitions, 1, config=config or {})])[topic].result(TIMEOUT_S)

    def describe(self, topic):
        a = ck_admin.AdminClient(self.base)
        resource = ck_admin.ConfigResource(ck_admin.RESOURCE_TOPIC, topic)
        return {k: v.value for k, v in a.describe_configs([resource])[resource].result(TIMEOUT_S).items()}

    def partitions(self, topic):
        return len(ck_admin.AdminClient(self.base).list_topics(topic, TIMEOUT_S).topics[topic].partitions)


class KafkaPython:
    """kafka-python: a protocol implementation of its own."""

    name = "kafka-python"

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.base = {"bootstrap_servers": bootstrap, "reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 200}

    def producer(self, codec="none", acks="all", idempotent=False, **more):
        return kafka.KafkaProducer(**dict(self.base, compression_type=None if codec == "none" else codec, acks=acks,
                                          enable_idempotence=idempotent, linger_ms=20, retry_backoff_ms=50,
                                          **more))

    def produce(self, topic, records, codec="none", acks="all", idempotent=False, partition=0):
        p = self.producer(codec, acks, idempotent)
        futures = [p.send(topic, r.value, r.key, list(r.headers), partition, r.timestamp) for r in records]
        p.flush(TIMEOUT_S)
        offsets = [f.get(TIMEOUT_S).offset for f in futures]
        p.close(TIMEOUT_S)
        return offsets

    def consumer(self, **more):
        return kafka.KafkaConsumer(**dict(self.base, group_id=None, auto_offset_reset="none", **more))

    def read(self, topic, count, partition=0):
        c = self.consumer()
        at = kafka.TopicPartition(topic, partition)
        c.assign([at])
        c.seek(at, 0)
        out, end = [], time.monotonic() + TIMEOUT_S
        while len(out) < count and time.monotonic() < end:
            for m in c.poll(200, max_records=count - len(out)).get(at, []):
                out.append((m.offset, Record(m.key, m.value, tuple(m.headers), m.timestamp)))
        c.close()
        return out

    def ends(self, topic, partition=0):
        c = self.consumer()
        at = kafka.TopicPartition(topic, partition)
        out = c.beginning_offsets([at])[at], c.end_offsets([at])[at]
        c.close()
        return out

    def offset_at(self, topic, timestamp, partition=0):
        c = self.consumer()
        at = kafka.TopicPartition(topic, partition)
        found = c.offsets_for_times({at: timestamp})[at]
        c.close()
        return None if found is None else found.offset

    def _admin(self):
        return kafka.KafkaAdminClient(**self.base)

    def create(self, topic, partitions=1, config=None):
        a = self._admin()
        try:
            a.create_topics([kp_admin.NewTopic(topic, partitions, 1, topic_configs=config or {})])
        finally:
            a.close()

    def describe(self, topic):
        a = self._admin()
        try:
            found = a.describe_configs([kp_admin.ConfigResource(kp_admin.ConfigResourceType.TOPIC, topic)])
        finally:
            a.close()
        entries = found["topic"][topic] if isinstance(found, dict) else found[0].resources[0][4]
        return {k: v["value"] for k, v in entries.items()} if isinstance(entries, dict) else {e[0]: e[1] for e in entries}

    def partitions(self, topic):
        c = self.consumer()
        found = c.partitions_for_topic(topic)
        c.close()
        return len(found or ())


class Kcat:
    """kcat with the librdkafka that the distribution ships: years older than confluent-kafka's."""

    name = "kcat"

    def __init__(self, bootstrap):
        self.base = ["kcat", "-b", bootstrap, "-X", "broker.address.family=v4"]

    def run(self, *arguments, stdin=b""):
        done = subprocess.run([*self.base, *arguments], input=stdin, capture_output=True, timeout=TIMEOUT_S + 10)
        if done.returncode != 0:
            raise AssertionError("kcat %s: %s" % (" ".join(arguments), done.stderr.decode(errors="replace").strip()))
        return done.stdout

    def produce(self, topic, records, codec="none", acks="all", idempotent=False, partition=0):
        """Text only: one line a record, key and value with a tab between, an empty one meaning null."""
        lines = b"".join(b"%s\t%s\n" % (r.key or b"", r.value or b"") for r in records)
        acks = {"all": "-1"}.get(acks, str(acks))
        self.run("-P", "-t", topic, "-p", str(partition), "-K", "\t", "-Z", "-z", codec, "-X", "acks=" + acks,
                 "-X", "linger.ms=20", "-X", "enable.idempotence=" + str(idempotent).lower(), stdin=lines)

    def read(self, topic, count, partition=0):
        """Lengths first, then the bytes: nothing in a key or value can be mistaken for a separator."""
        data = self.run("-C", "-t", topic, "-p", str(partition), "-o", "beginning", "-c", str(count), "-e", "-q", "-u",
                        "-X", "check.crcs=true", "-f", "%o %K %S %T\n%k%s")
        out, at = [], 0
        while at < len(data):
            end = data.index(b"\n", at)
            offset, key_len, value_len, timestamp = map(int, data[at:end].split())
            at = end + 1

            def take(length):
                nonlocal at
                if length < 0:
                    return None
                at += length
                return data[at - length:at]

            key, value = take(key_len), take(value_len)
            out.append((offset, Record(key, value, (), timestamp)))
        return out

    def headers(self, topic):
        data = self.run("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-J")
        return [json.loads(line).get("headers") for line in data.splitlines()]

    def offset_at(self, topic, timestamp, partition=0):
        found = int(self.run("-Q", "-t", "%s:%d:%d" % (topic, partition, timestamp)).split()[-1])
        return None if found < 0 else found

    def ends(self, topic, partition=0):
        return self.offset_at(topic, -2, partition), self.offset_at(topic, -1, partition)

    def partitions(self, topic):
        found = json.loads(self.run("-L", "-J", "-t", topic))["topics"]
        return len(next(t for t in found if t["topic"] == topic)["partitions"])
