"""Kills a broker with `kill -9` under load, again and again, and starts it again on the same folder.

Two producers send all the time, one plain and one idempotent, over several partitions. After each restart everything
that was acknowledged must be at its acknowledged offset; what a reader has seen once never changes; offsets stay dense.
At the end all is read from the beginning once more: the idempotent producer's records are there once and in order.
Prints a line per kill and, last, `N passed, N failed`.
"""
import argparse
import random
import sys
import threading
import time

import confluent_kafka as ck

import broker as brokers
from drivers import Confluent

PARTITIONS = 3
RATE = 3000  # records a second and producer
READ_TIMEOUT_S = 60


class Load(threading.Thread):
    """A producer that sends numbered values to all partitions in turn until it is told to stop."""

    def __init__(self, driver, topic, idempotent):
        super().__init__(daemon=True)
        self.topic, self.idempotent = topic, idempotent
        # The partition's offset of every acknowledged record, and its value.
        self.acked = {p: {} for p in range(PARTITIONS)}
        self.conflicts, self.errors, self.sent = [], [], 0
        self.halt = threading.Event()
        self.producer = driver.producer("none", "all", idempotent, linger_ms=2, message_timeout_ms=120_000,
                                        batch_num_messages=50, socket_timeout_ms=5000, queue_buffering_max_messages=1_000_000)

    def delivered(self, error, message):
        if error:
            self.errors.append(str(error))
            return
        here = self.acked[message.partition()]
        if here.setdefault(message.offset(), message.value()) != message.value():
            self.conflicts.append("%s-%d offset %d acknowledged twice" % (self.topic, message.partition(), message.offset()))

    def run(self):
        began = time.monotonic()
        while not self.halt.is_set():
            # No more than 2 s of records in flight: a broker that is down is waited for.
            while self.sent < (time.monotonic() - began) * RATE and len(self.producer) < 2 * RATE:
                value = b"%s %d" % (self.topic.encode(), self.sent)
                self.producer.produce(self.topic, value + b" " * (self.sent % 200), partition=self.sent % PARTITIONS,
                                      on_delivery=self.delivered)
                self.sent += 1
            if len(self.producer) >= 2 * RATE:
                began = time.monotonic() - self.sent / RATE
            self.producer.poll(0.01)
        self.producer.flush(READ_TIMEOUT_S)

    def count(self):
        return sum(len(a) for a in self.acked.values())


class Reader:
    """Reads on from where it was, and remembers every value it saw."""

    def __init__(self, driver, topic):
        self.topic = topic
        self.seen = {p: [] for p in range(PARTITIONS)}
        self.driver = driver

    def read_to(self, ends):
        """Reads each partition up to (not including) the offset in `ends`. Returns what is wrong."""
        wrong = []
        consumer = self.driver.consumer(auto_offset_reset="error")
        consumer.assign([ck.TopicPartition(self.topic, p, len(s)) for p, s in self.seen.items()])
        limit = time.monotonic() + READ_TIMEOUT_S
        while any(len(self.seen[p]) < end for p, end in ends.items()):
            if time.monotonic() > limit:
                wrong.append("%s: read only to %s, wanted %s" % (self.topic, {p: len(s) for p, s in self.seen.items()}, ends))
                break
            for m in consumer.consume(5000, 0.1):
                if m.error():
                    if m.error().code() in (ck.KafkaError._AUTO_OFFSET_RESET, ck.KafkaError.OFFSET_OUT_OF_RANGE):
                        consumer.close()
                        return wrong + ["%s: %s" % (self.topic, m.error())]
                    continue
                here = self.seen[m.partition()]
                if m.offset() != len(here):
                    consumer.close()
                    return wrong + ["%s-%d: offset %d follows %d" % (self.topic, m.partition(), m.offset(), len(here) - 1)]
                here.append(m.value())
        consumer.close()
        return wrong


def acknowledged_ends(load):
    return {p: max(a, default=-1) + 1 for p, a in ((p, dict(a)) for p, a in load.acked.items())}


def missing(load, reader, checked):
    """Acknowledged records that are not where they were acknowledged, among those not looked at before."""
    wrong = list(load.conflicts)
    for p in range(PARTITIONS):
        seen = reader.seen[p]
        for offset, value in list(load.acked[p].items())[checked[p]:]:
            if offset >= len(seen):
                break  # acknowledged since the reader stopped: looked at next time
            checked[p] += 1
            if seen[offset] != value:
                wrong.append("%s-%d offset %d: acknowledged %r, holds %r" % (load.topic, p, offset, value, seen[offset]))
    return wrong[:3]


def final(driver, load, reader):
    """Everything once more from the beginning, and the idempotent producer's promise."""
    again = Reader(driver, load.topic)
    ends = {p: driver.ends(load.topic, p)[1] for p in range(PARTITIONS)}
    wrong = again.read_to(ends)
    for p in range(PARTITIONS):
        if again.seen[p][:len(reader.seen[p])] != reader.seen[p]:
            wrong.append("%s-%d: what was read before a kill has changed" % (load.topic, p))
    wrong += missing(load, again, {p: 0 for p in range(PARTITIONS)})
    if load.idempotent:
        for p in range(PARTITIONS):
            numbers = [int(v.split()[1]) for v in again.seen[p]]
            if any(b <= a for a, b in zip(numbers, numbers[1:])):
                wrong.append("%s-%d: a record twice or out of order" % (load.topic, p))
            if not load.errors and numbers != list(range(p, load.sent, PARTITIONS)):
                wrong.append("%s-%d: %d records, not those that were sent" % (load.topic, p, len(numbers)))
    return wrong + load.errors[:1]


def run(broker, kills, rng):
    broker.start()
    driver = Confluent(broker.bootstrap)
    loads = []
    for idempotent in (False, True):
        topic = "%s-%x" % ("idempotent" if idempotent else "plain", time.time_ns() // 1_000_000)
        driver.create(topic, PARTITIONS)
        loads.append(Load(driver, topic, idempotent))
    readers = [Reader(driver, load.topic) for load in loads]
    checked = [{p: 0 for p in range(PARTITIONS)} for _ in loads]
    for load in loads:
        load.start()
    passed = failed = 0
    back = []
    for number in range(1, kills + 1):
        # Let it acknowledge something first, or the kill proves nothing.
        before, limit = [load.count() for load in loads], time.monotonic() + READ_TIMEOUT_S
        while any(load.count() <= b for load, b in zip(loads, before)) and time.monotonic() < limit:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.4))
        broker.kill()
        if hasattr(broker, "start_and_kill") and rng.random() < 0.2:
            broker.start_and_kill(rng.uniform(0, 0.05))
        began = time.monotonic()
        broker.start()
        back.append(time.monotonic() - began)
        wrong = []
        for load, reader, seen in zip(loads, readers, checked):
            wrong += reader.read_to(acknowledged_ends(load))
            wrong += missing(load, reader, seen)
        passed, failed = (passed, failed + 1) if wrong else (passed + 1, failed)
        print("kill %3d: %7d acknowledged, back after %4d ms%s" % (
            number, sum(load.count() for load in loads), back[-1] * 1000, "".join("\n     FAIL " + w for w in wrong)))
        sys.stdout.flush()
        if failed > 3:
            break
    for load in loads:
        load.halt.set()
    for load in loads:
        load.join(2 * READ_TIMEOUT_S)
    broker.stop()
    broker.start()
    for load, reader in zip(loads, readers):
        wrong = final(driver, load, reader)
        passed, failed = (passed, failed + 1) if wrong else (passed + 1, failed)
        print("%s: %d sent, %d acknowledged%s" % (load.topic, load.sent, load.count(), "".join("\n     FAIL " + w for w in wrong)))
    back.sort()
    print("back to serving after kill -9: median %d ms, worst %d ms" % (back[len(back) // 2] * 1000, back[-1] * 1000))
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    brokers.add_arguments(parser)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=None, help="for the times between kills (default: from the clock)")
    options = parser.parse_args()
    broker = brokers.broker(options)
    seed = time.time_ns() % 1_000_000 if options.seed is None else options.seed
    print("seed %d" % seed)
    passed, failed = 0, 1
    try:
        passed, failed = run(broker, options.kills, random.Random(seed))
    except Exception as error:
        print("FAIL %s: %s" % (type(error).__name__, error))
    finally:
        if failed:
            print("-- the broker's last lines:\n" + broker.tail())
        broker.close()
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
