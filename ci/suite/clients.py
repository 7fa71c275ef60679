"""Real clients against a real broker: kcat, confluent-kafka and kafka-python produce, read back, create topics and ask
for offsets, over a clean restart and a `kill -9`. Prints a line per check and, last, `N passed, N failed`."""
import argparse
import os
import sys
import threading
import time
import traceback

import confluent_kafka as ck
import kafka

import broker as brokers
from drivers import CODECS, TIMEOUT_S, Confluent, KafkaPython, Kcat, Record

ACKS = (0, 1, "all")
# Run number: a broker that was there before may hold the topics of another run.
RUN = "%x" % (time.time_ns() // 1_000_000 % 0xFFFFFFF)

# A time of records that is not now, yet young enough for any broker's retention.
THEN = int(time.time() * 1000) - 3_600_000


class Suite:
    def __init__(self, broker):
        self.broker = broker
        self.confluent, self.kafka_python, self.kcat = (k(broker.bootstrap) for k in (Confluent, KafkaPython, Kcat))
        self.clients = [self.confluent, self.kafka_python, self.kcat]
        self.passed = self.failed = 0
        # topic -> (codec, expected records), of everything that was produced and read back
        self.written = {}

    def check(self, name, function, *arguments):
        began = time.monotonic()
        try:
            function(*arguments)
        except Exception as error:
            self.failed += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            print("FAIL %s: %s: %s (%s:%d)" % (name, type(error).__name__, error, os.path.basename(where.filename), where.lineno))
        else:
            self.passed += 1
            print("ok   %s (%.2f s)" % (name, time.monotonic() - began))
        sys.stdout.flush()

    # ---- produce and read back
    def round_trip(self, client, codec, acks):
        topic = "t-%s-%s-%s-%s" % (RUN, client.name, codec, acks)
        self.confluent.create(topic)
        records = text_records(60) if client is self.kcat else odd_records(60, client is self.kafka_python)
        offsets = client.produce(topic, records, codec, acks)
        if offsets and acks != 0:
            equal(sorted(offsets), list(range(len(records))), "offsets that the producer was told")
        same(client.read(topic, len(records)), records, client is self.kcat)
        self.written[topic] = (codec, records)

    def read_again(self, reader):
        for topic, (_, records) in self.written.items():
            try:
                same(reader.read(topic, len(records)), records, reader is self.kcat or "kcat" in topic)
            except AssertionError as error:
                raise AssertionError("%s: %s" % (topic, error))

    def appends_after(self, client):
        """What is produced after a restart lands behind what was there."""
        topic, (codec, records) = next((t, w) for t, w in self.written.items() if client.name in t)
        more = text_records(5)
        client.produce(topic, more, codec)
        records.extend(more)
        same(client.read(topic, len(records)), records, client is self.kcat)
        equal(client.ends(topic), (0, len(records)), "first and end offset")

    def stored_codec(self, codec):
        """The broker keeps the batches as they were sent: nothing is re-compressed."""
        seen = 0
        for topic, (sent, records) in self.written.items():
            if sent != codec:
                continue
            batches = brokers.stored_batches(self.broker.data_dir, topic)
            equal(sum(count for _, count in batches), len(records), topic + ": records in the segment files")
            if codec != "none":
                equal({c for c, _ in batches}, {CODECS.index(codec)}, topic + ": codec of the stored batches")
            seen += 1
        assert seen, "no topic to look at"

    # ---- topics
    def creates(self, client):
        topic = "create-%s-%s" % (RUN, client.name)
        client.create(topic, 3, {"max.message.bytes": "123456"})
        equal(client.partitions(topic), 3, "partitions")
        equal(client.describe(topic)["max.message.bytes"], "123456", "max.message.bytes as described")
        for bad, what in ((topic, "exists"), ("no/slash", "invalid"), ("x" * 250, "invalid")):
            try:
                client.create(bad)
            except (ck.KafkaException, kafka.errors.KafkaError) as error:
                assert what in repr(error).lower(), "%s: %r" % (bad[:20], error)
            else:
                raise AssertionError("%s was created" % bad[:20])

    def creates_at_first_use(self, client):
        topic = "auto-%s-%s" % (RUN, client.name)
        records = text_records(10)
        client.produce(topic, records)
        assert client.partitions(topic) >= 1
        same(client.read(topic, len(records)), records, client is self.kcat)

    # ---- offsets
    def offsets_by_time(self, client):
        topic = "time-%s-%s" % (RUN, client.name)
        self.confluent.create(topic)
        base = THEN
        # A batch each for the first ten, then one compressed batch: the record inside it is asked for.
        for i in range(10):
            self.confluent.produce(topic, [Record(value=b"v%d" % i, timestamp=base + 10 * i)])
        self.confluent.produce(topic, [Record(value=b"w" * 100, timestamp=base + 100 + 10 * i) for i in range(10)], "lz4")
        for at in range(20):
            equal(client.offset_at(topic, base + 10 * at), at, "offset at the time of record %d" % at)
            equal(client.offset_at(topic, base + 10 * at - 5), at, "offset just before record %d" % at)
        equal(client.offset_at(topic, base + 1000), None, "offset past the newest record")
        equal(client.ends(topic), (0, 20), "first and end offset")

    # ---- idempotence
    def idempotent(self, client):
        topic = "idem-%s-%s" % (RUN, client.name)
        self.confluent.create(topic)
        records = text_records(3000)
        client.produce(topic, records, "lz4", "all", True)
        same(client.read(topic, len(records)), records, client is self.kcat)
        equal(client.ends(topic), (0, len(records)), "first and end offset")

    def idempotent_over_kill(self, client):
        """The broker dies under a producer that retries: every record is there once, in order."""
        topic = "kill-%s-%s" % (RUN, client.name)
        self.confluent.create(topic)
        records = text_records(4000)
        errors, acked = [], []
        p = client.producer("none", "all", True, **({"message_timeout_ms": 60_000} if client is self.confluent else {}))
        halfway = threading.Event()

        def send():
            futures = []
            for i, r in enumerate(records):
                if client is self.confluent:
                    p.produce(topic, r.value, r.key, 0, on_delivery=lambda e, m: (errors if e else acked).append(e or m.offset()))
                    p.poll(0)
                else:
                    futures.append(p.send(topic, r.value, r.key, partition=0))
                if i == len(records) // 2:
                    halfway.set()
                if i % 4 == 0:
                    time.sleep(0.001)
            p.flush(*[3 * TIMEOUT_S] if client is self.confluent else [])
            for f in futures:
                try:
                    acked.append(f.get(TIMEOUT_S).offset)
                except kafka.errors.KafkaError as error:
                    errors.append(error)

        sender = threading.Thread(target=send)
        sender.start()
        halfway.wait(TIMEOUT_S)
        self.broker.kill()
        time.sleep(0.2)
        self.broker.start()
        sender.join(4 * TIMEOUT_S)
        equal(errors[:1], [], "delivery errors")
        equal(len(acked), len(records), "acknowledged")
        equal(sorted(acked), list(range(len(records))), "offsets that the producer was told")
        same(client.read(topic, len(records)), records)
        equal(client.ends(topic), (0, len(records)), "first and end offset")

    # ---- the rest
    def many_partitions(self, client):
        topic = "spread-%s-%s" % (RUN, client.name)
        self.confluent.create(topic, 8)
        for p in range(8):
            client.produce(topic, text_records(500), "zstd", partition=p)
        for p in range(8):
            same(client.read(topic, 500, p), text_records(500), client is self.kcat)
            equal(client.ends(topic, p), (0, 500), "first and end offset of partition %d" % p)

    def large_record(self, client):
        topic = "large-%s-%s" % (RUN, client.name)
        self.confluent.create(topic)
        value = os.urandom(450_000).hex().encode()
        client.produce(topic, [Record(value=value)])
        same(client.read(topic, 1), [Record(value=value)])

    def too_large_record(self):
        topic = "toolarge-%s" % RUN
        self.confluent.create(topic, config={"max.message.bytes": "50000"})
        errors = []
        p = self.confluent.producer()
        p.produce(topic, os.urandom(60_000), on_delivery=lambda e, m: errors.append(e))
        p.flush(TIMEOUT_S)
        equal(errors[0].code(), ck.KafkaError.MSG_SIZE_TOO_LARGE, "error of a record past max.message.bytes")
        self.confluent.produce(topic, [Record(value=b"small")])
        equal(self.confluent.ends(topic), (0, 1), "first and end offset")

    def null_and_header_with_kcat(self):
        topic = "kcat-odd-%s" % RUN
        self.confluent.create(topic)
        self.kcat.run("-P", "-t", topic, "-p", "0", "-K", ":", "-Z", "-H", "a=1", "-H", "a=2", stdin=b":\nk:\n:v\n")
        got = self.confluent.read(topic, 3)
        equal([(r.key, r.value) for _, r in got], [(None, None), (b"k", None), (None, b"v")], "keys and values")
        equal({r.headers for _, r in got}, {(("a", b"1"), ("a", b"2"))}, "headers")
        equal(self.kcat.headers(topic), [["a", "1", "a", "2"]] * 3, "headers as kcat reads them")

    def long_poll(self):
        """A consumer at the end of a partition is answered when data comes, not when its wait is over."""
        topic = "poll-%s" % RUN
        self.confluent.create(topic)
        c = self.confluent.consumer(fetch_wait_max_ms=5000)
        c.assign([ck.TopicPartition(topic, 0, 0)])
        equal(c.poll(1.0), None, "a record of an empty topic")
        p = self.confluent.producer(linger_ms=0)
        delays = []
        for i in range(5):
            began = time.monotonic()
            p.produce(topic, b"%d" % i, partition=0)
            p.poll(0)
            message = c.poll(10)
            delays.append(time.monotonic() - began)
            equal(message.value(), b"%d" % i, "value")
            p.flush(TIMEOUT_S)
        c.close()
        assert max(delays) < 1, "took %.2f s" % max(delays)

    def consumer_goes_on_over_restart(self):
        topic = "stay-%s" % RUN
        self.confluent.create(topic)
        c = self.confluent.consumer()
        c.assign([ck.TopicPartition(topic, 0, 0)])
        self.confluent.produce(topic, [Record(value=b"before")])
        equal(poll_value(c), b"before", "value")
        self.broker.stop()
        self.broker.start()
        self.confluent.produce(topic, [Record(value=b"after")])
        equal(poll_value(c), b"after", "value")
        c.close()

    def run(self):
        self.broker.start()
        for client in self.clients:
            for codec in CODECS:
                for acks in ACKS:
                    self.check("%s %s acks=%s" % (client.name, codec, acks), self.round_trip, client, codec, acks)
        for client in self.clients:
            self.check(client.name + " idempotent producer", self.idempotent, client)
            self.check(client.name + " offsets by time", self.offsets_by_time, client)
            self.check(client.name + " eight partitions", self.many_partitions, client)
            self.check(client.name + " large record", self.large_record, client)
            self.check(client.name + " topic created at first use", self.creates_at_first_use, client)
        for client in (self.confluent, self.kafka_python):
            self.check(client.name + " creates and describes topics", self.creates, client)
        self.check("record past max.message.bytes", self.too_large_record)
        self.check("kcat null keys and values, headers", self.null_and_header_with_kcat)
        self.check("long poll", self.long_poll)

        self.check("clean stop", self.broker.stop)
        if self.broker.data_dir:
            for codec in CODECS:
                self.check("stored as sent, " + codec, self.stored_codec, codec)
        self.broker.start()
        for client in self.clients:
            self.check(client.name + " reads all after a clean restart", self.read_again, client)
            self.check(client.name + " appends after a clean restart", self.appends_after, client)
        self.broker.kill()
        self.broker.start()
        for client in self.clients:
            self.check(client.name + " reads all after kill -9", self.read_again, client)
            self.check(client.name + " appends after kill -9", self.appends_after, client)
        for client in (self.confluent, self.kafka_python):
            self.check(client.name + " idempotent producer over kill -9", self.idempotent_over_kill, client)
        self.check("consumer goes on over a restart", self.consumer_goes_on_over_restart)


def text_records(count):
    """What every client can send and print: keys and values of plain text."""
    return [Record(b"key-%d" % i, (b"value-%06d " % i) * (1 + i % 40)) for i in range(count)]


def odd_records(count, sparing):
    """Null, empty and binary keys and values; repeated, empty and null headers; timestamps that are not now.
    `sparing` leaves out what kafka-python refuses to send: null headers, and null for both key and value."""
    keys = (b"" if sparing else None, b"", b"k", bytes(range(256)))
    values = (b"plain " * 50, b"", None, bytes(range(256)) * 20)
    headers = ((), (("h", b"1"), ("h", b"2"), ("a", b"")), (("n", b"" if sparing else None),))
    return [Record(keys[i % 4], values[i // 4 % 4], headers[i % 3], THEN + i) for i in range(count)]


def equal(got, wanted, what):
    assert got == wanted, "%s: got %.200r, wanted %.200r" % (what, got, wanted)


def same(got, wanted, text=False):
    """What was read against what was sent: offsets dense from 0, every field equal (`text`: keys and values alone)."""
    equal(len(got), len(wanted), "records read")
    for i, ((offset, g), w) in enumerate(zip(got, wanted)):
        equal(offset, i, "offset of record %d" % i)
        equal(g.key, w.key, "key of record %d" % i)
        equal(g.value, w.value, "value of record %d" % i)
        if not text:
            equal(g.headers, tuple(w.headers), "headers of record %d" % i)
            if w.timestamp is not None:
                equal(g.timestamp, w.timestamp, "timestamp of record %d" % i)


def poll_value(consumer):
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        message = consumer.poll(0.5)
        if message is not None and not message.error():
            return message.value()
    raise AssertionError("no record within %d s" % TIMEOUT_S)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    brokers.add_arguments(parser)
    broker = brokers.broker(parser.parse_args())
    suite = Suite(broker)
    try:
        suite.run()
    except Exception as error:  # the broker would not start or stop: what follows makes no sense
        suite.failed += 1
        print("FAIL broker: %s" % error)
    finally:
        if suite.failed:
            print("-- the broker's last lines:\n" + broker.tail())
        broker.close()
    print("%d passed, %d failed" % (suite.passed, suite.failed))
    return 1 if suite.failed else 0


if __name__ == "__main__":
    sys.exit(main())
