"""The few requests that a test of faults sends by itself, so that no client's retries stand between it and the broker."""
import socket
import struct
import time


class Connection:
    """One connection, one request at a time. Raises `EOFError` if the broker hangs up."""

    def __init__(self, address, timeout_s=5):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout_s)

    def call(self, key, version, body):
        message = struct.pack(">hhih", key, version, 1, -1) + body
        self.socket.sendall(struct.pack(">i", len(message)) + message)
        return self._read(struct.unpack(">i", self._read(4))[0])[4:]

    def _read(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise EOFError("the connection was closed without an answer")
            data += more
        return data

    def create(self, topic):
        """Creates a topic of one partition; returns the error code."""
        body = struct.pack(">i", 1) + text(topic) + struct.pack(">ihii", 1, 1, 0, 0) + struct.pack(">ib", 10_000, 0)
        return struct.unpack_from(">h", self.call(19, 2, body), 8 + 2 + len(topic))[0]

    def produce(self, topic, value):
        """Sends one record to partition 0; returns the error code."""
        data = batch(value)
        body = struct.pack(">hhii", -1, -1, 5000, 1) + text(topic) + struct.pack(">iii", 1, 0, len(data)) + data
        return struct.unpack_from(">h", self.call(0, 7, body), 4 + 2 + len(topic) + 8)[0]

    def fetch(self, topic):
        """Reads partition 0 from its start; returns the error code."""
        body = struct.pack(">iiiibi", -1, 500, 1, 1 << 20, 0, 1) + text(topic) + struct.pack(">iiqi", 1, 0, 0, 1 << 20)
        return struct.unpack_from(">h", self.call(1, 4, body), 4 + 4 + 2 + len(topic) + 8)[0]

    def close(self):
        self.socket.close()


def text(value):
    return struct.pack(">h", len(value)) + value.encode()


def batch(value):
    """A record batch of one record."""
    now = int(time.time() * 1000)
    record = b"\0" + varint(0) + varint(0) + varint(-1) + varint(len(value)) + value + varint(0)
    checked = struct.pack(">hiqqqhii", 0, 0, now, now, -1, -1, -1, 1) + varint(len(record)) + record
    return struct.pack(">qiibI", 0, 9 + len(checked), -1, 2, crc32c(checked)) + checked


def varint(number):
    number = number << 1 ^ number >> 63
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + bytes([number]))


def _table():
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        yield value


TABLE = list(_table())


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
