"""Sends compressed batches that are damaged in every small way to two brokers and compares what they make of them.

The reference is a broker of Apache Kafka, at the address given; the broker under test is started here, or given with
`--bootstrap`. For each way of compressing, every single bit of the compressed part is flipped, and a list of other changes
is made; the checksum of the batch is right each time. A broker stores such a batch or refuses it. What the brokers differ
in must be listed in `REFUSED` or `STORED`. Everything that the broker under test has stored is then read back with
librdkafka and with kafka-python's decoders. Exit code 1 if a difference is not explained, an explained one does not occur,
or something stored cannot be read.
"""
import argparse
import collections
import socket
import struct
import sys
import time

import confluent_kafka as ck
import kafka.codec

import broker as brokers
import frames

PIPELINED = 32
READ_TIMEOUT_S = 60

# What the broker under test refuses and the reference stores: why, and what it is about.
REFUSED = {
    "librdkafka reads the first member and no further": [
        ("gzip", "two members"), ("gzip", "empty member before")],
    "kafka-python fails at garbage, librdkafka passes over another member": [
        ("gzip", "bytes behind")],
    "librdkafka's zlib refuses it": [
        ("gzip", "bit of flags"), ("gzip", "reserved flag")],
    "librdkafka refuses it": [
        ("lz4", "bytes behind")],
    "kafka-python and librdkafka refuse it": [
        ("lz4", "end mark with the top bit"), ("lz4", "bit of end mark"),
        ("lz4 with checksums and size", "bit of end mark"),
        ("lz4", "wrong content checksum"), ("lz4 with checksums and size", "bit of content checksum"),
        ("lz4", "wrong content size"), ("lz4", "huge content size")],
    "Java takes an empty stored block for the end, and fails at an empty compressed one that is not the last": [
        ("lz4", "empty stored block"), ("lz4", "empty compressed block")],
    "the format forbids it, and what comes out is undefined": [
        ("lz4", "offset zero")],
    "kafka-python and librdkafka look for a chunk there": [
        ("snappy", "two streams"), ("snappy", "header behind"), ("snappy", "part of a chunk length behind")],
    "Java with an older snappy refuses it": [
        ("snappy", "version zero"), ("snappy", "negative version"), ("snappy framed", "bit of version")],
    "kafka-python before version 3 reads the first frame and no further": [
        ("zstd", "two frames"), ("zstd", "empty frame before"), ("zstd", "bytes behind"),
        ("zstd", "skippable frame before")],
    # A negative length other than -1, or a length of a record that is not that of its fields.
    "the reference passes over lengths within compressed records, and readers do not": [
        ("snappy", "bit of elements"), ("snappy framed", "bit of elements"), ("lz4", "bit of block"),
        ("zstd streamed", "bit of block")],
}
# What the broker under test stores and the reference refuses.
STORED = {}


def crc32c_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


CRC32C = crc32c_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC32C[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def batch(codec, part, count):
    now = int(time.time() * 1000)
    tail = struct.pack(">hiqqqhii", codec, count - 1, now, now, -1, -1, -1, count) + part
    return struct.pack(">qiibI", 0, 9 + len(tail), -1, 2, crc32c(tail)) + tail


class Broker:
    """One connection, one topic of one partition."""

    def __init__(self, address, topic):
        host, port = address.rsplit(":", 1)
        self.address, self.topic = address, topic
        self.socket = socket.create_connection((host.strip("[]"), int(port)), 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.created()

    def send(self, key, version, body):
        message = struct.pack(">hhih", key, version, 0, -1) + body
        self.socket.sendall(struct.pack(">i", len(message)) + message)

    def receive(self):
        return self.exactly(struct.unpack(">i", self.exactly(4))[0])[4:]

    def exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError("%s closed the connection" % self.address)
            data += more
        return data

    def created(self):
        name = struct.pack(">h", len(self.topic)) + self.topic.encode()
        self.send(19, 2, struct.pack(">i", 1) + name + struct.pack(">ihii", 1, 1, 0, 0) + struct.pack(">ib", 10000, 0))
        self.receive()
        end = time.monotonic() + 30
        # Until the leader is there; a batch that no broker stores asks for it.
        while self.verdicts([b"\0" * 61])[0][0] in (3, 5, 6):
            if time.monotonic() > end:
                raise RuntimeError("%s does not lead the new topic" % self.address)
            time.sleep(0.1)

    def verdicts(self, batches):
        """[(error code, base offset)] of batches sent one by one."""
        name = struct.pack(">h", len(self.topic)) + self.topic.encode()
        out, waiting = [], collections.deque()

        def answer():
            waiting.popleft()
            out.append(struct.unpack_from(">hq", self.receive(), 4 + len(name) + 4 + 4))

        for data in batches:
            body = struct.pack(">hhii", -1, -1, 30000, 1) + name + struct.pack(">iii", 1, 0, len(data)) + data
            self.send(0, 7, body)
            waiting.append(None)
            if len(waiting) == PIPELINED:
                answer()
        while waiting:
            answer()
        return out


def decoded(case):
    """What kafka-python makes of the compressed part."""
    decode = {1: kafka.codec.gzip_decode, 2: kafka.codec.snappy_decode, 3: kafka.codec.lz4_decode,
              4: kafka.codec.zstd_decode}[case.codec]
    return decode(case.part)


def unreadable(broker, stored):
    """What kafka-python or librdkafka cannot read of what was stored, as [(case, base offset)]."""
    faults = []
    for case, _ in stored:
        try:
            problem = None if frames.is_records(decoded(case), case.count) else "it reads other records"
        except Exception as error:
            problem = error
        if problem:
            faults.append("kafka-python cannot read %s, %s (%s): %s" % (case.variant, case.kind, case.detail, problem))
    seen = offsets_read(broker, max((base + case.count for case, base in stored), default=0))
    for case, base in stored:
        if not seen.issuperset(range(base, base + case.count)):
            faults.append("librdkafka cannot read %s, %s (%s)" % (case.variant, case.kind, case.detail))
    return faults


def offsets_read(broker, end):
    """The offsets that librdkafka gives out."""
    consumer = ck.Consumer({"bootstrap.servers": broker.address, "broker.address.family": "v4", "group.id": "verdicts",
                            "enable.auto.commit": False, "auto.offset.reset": "error", "check.crcs": True, "log_level": 0})
    consumer.assign([ck.TopicPartition(broker.topic, 0, 0)])
    seen, until = set(), time.monotonic() + READ_TIMEOUT_S
    while end - 1 not in seen and time.monotonic() < until:
        seen.update(message.offset() for message in consumer.consume(10000, 1) if not message.error())
    consumer.close()
    return seen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    brokers.add_arguments(parser)
    parser.add_argument("reference", help="the reference broker, as HOST:PORT")
    options = parser.parse_args()
    started = brokers.broker(options)
    try:
        started.start()
        return compare(started.bootstrap, options.reference)
    finally:
        started.close()


def compare(*addresses):
    began = time.monotonic()
    topic = "codec-verdicts-%d" % time.time()
    tested, reference = (Broker(address, topic) for address in addresses)
    cases = frames.cases()
    batches = [batch(case.codec, case.part, case.count) for case in cases]
    ours, theirs = tested.verdicts(batches), reference.verdicts(batches)

    differing, agreed = collections.defaultdict(list), collections.Counter()
    for case, (our_error, _), (their_error, _) in zip(cases, ours, theirs):
        if (our_error == 0) != (their_error == 0) or case.kind == frames.UNCHANGED and our_error:
            differing[our_error == 0, case.variant, case.kind].append(case)
        else:
            agreed[our_error == 0] += 1
    stored = [(case, base) for case, (error, base) in zip(cases, ours) if error == 0]
    faults = unexplained(differing) + unreadable(tested, stored)
    for fault in faults:
        print("FAULT " + fault)
    print("%d batches in %.0f s: both store %d, both refuse %d, %d differ; %d are read back; %d faults" % (
        len(cases), time.monotonic() - began, agreed[True], agreed[False], sum(map(len, differing.values())), len(stored),
        len(faults)))
    return 1 if faults else 0


def unexplained(differing):
    """Prints what differs; returns what should not, and what should and does not."""
    faults = []
    reasons = {(is_stored, *kind): reason for is_stored, table in ((True, STORED), (False, REFUSED))
               for reason, kinds in table.items() for kind in kinds}
    for key, cases in sorted(differing.items()):
        is_stored, variant, kind = key
        details = ", ".join(str(case.detail) for case in cases[:8]) + (", ..." if len(cases) > 8 else "")
        line = "%s by the broker alone: %s, %s: %d (%s)" % (
            "stored" if is_stored else "refused", variant, kind, len(cases), details)
        if key in reasons:
            print(line + ": " + reasons.pop(key))
        else:
            faults.append(line)
    return faults + ["%s, %s: explained, and does not occur" % key[1:] for key in reasons]


if __name__ == "__main__":
    sys.exit(main())
