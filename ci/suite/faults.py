"""What must not matter: a log that cannot be written, and a peer that sends what is no request. Starts a broker for each
case; needs no root. Prints a line per check and, last, `N passed, N failed`."""
import argparse
import fcntl
import os
import random
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

import broker as brokers
import wire

HOSTILE_CONNECTIONS = 20_000
# Two kinds of lines, a few of each in ten seconds, and a summary.
LINES_PER_INTERVAL_MAX = 30


class Case:
    """A broker whose standard streams go to `sink`."""

    def __init__(self, options, sink, environment=None, limit=None):
        self.folder = tempfile.mkdtemp(prefix="kilo-faults-")
        self.address = "127.0.0.1:%d" % brokers.free_port()
        command = [os.path.abspath(options.kilo), "serve", "--set", "listeners=" + self.address,
                   "--set", "log.dirs=" + os.path.join(self.folder, "data")]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, preexec_fn=limit,
                                        env=dict(os.environ, **(environment or {})))
        end = time.monotonic() + 30
        while not brokers.listens(self.address):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the broker did not start (exit code %s)" % self.process.poll())
            time.sleep(0.02)

    def connect(self):
        return wire.Connection(self.address)

    def serves(self, topic):
        """A topic is created, written and read, each over a connection of its own, as each leaves lines."""
        equal(self.connect().create(topic), 0, "creating topic %s" % topic)
        equal(self.connect().produce(topic, b"value"), 0, "producing to %s" % topic)
        equal(self.connect().fetch(topic), 0, "fetching from %s" % topic)

    def stops(self):
        self.process.send_signal(signal.SIGTERM)
        equal(self.process.wait(20), 0, "exit code after SIGTERM")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)


def reader_goes_away(options):
    reader, writer = os.pipe()
    case = Case(options, writer, {"KILO_LOG": "debug"})
    os.close(writer)
    try:
        case.serves("before")
        os.close(reader)
        for number in range(5):
            case.serves("after-%d" % number)
        case.stops()
    finally:
        case.close()


def reader_stands_still(options):
    reader, writer = os.pipe()
    fcntl.fcntl(writer, 1031, 4096)  # F_SETPIPE_SZ: it is full after a few lines
    case = Case(options, writer, {"KILO_LOG": "debug"})
    os.close(writer)
    try:
        for number in range(100):
            case.serves("still-%d" % number)
        case.stops()
    finally:
        os.close(reader)
        case.close()


def nothing_can_be_written(options):
    with open("/dev/full", "w") as sink:
        case = Case(options, sink, {"KILO_LOG": "debug"})
        try:
            case.serves("t")
            case.stops()
        finally:
            case.close()


def log_file_is_full(options):
    """A file that may not grow is what a full disk is to the log; then it may grow again, and what was lost is counted."""
    size = 1 << 30

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    with tempfile.NamedTemporaryFile("r") as log, open(log.name, "a") as sink:
        sink.truncate(size)
        case = Case(options, sink, {"KILO_LOG": "debug"}, limit)
        try:
            case.serves("full")
            equal(os.fstat(sink.fileno()).st_size, size, "size of the full log")
            sink.truncate(size - 1_000_000)
            case.serves("again")
            case.stops()
            log.seek(size - 1_000_000)
            lines = log.read()
            assert "lines of the log were lost here" in lines, "what was lost is not told: %.300s" % lines
        finally:
            case.close()


def hostile(address, count, seed):
    draw = random.Random(seed)
    host, port = address.rsplit(":", 1)
    for _ in range(count):
        kind = draw.randrange(4)
        if kind == 0:    # an API that is not there
            body = struct.pack(">hhih", draw.randrange(100, 30_000), 0, 1, -1)
        elif kind == 1:  # a version that is not there
            body = struct.pack(">hhih", draw.randrange(2), 99, 1, -1)
        elif kind == 2:  # a body that is none
            body = struct.pack(">hhih", 3, 1, 1, -1) + b"\xff" * 3
        else:            # no frame at all
            body = None
        data = struct.pack(">i", len(body)) + body if body is not None else draw.randbytes(40)
        if body is None:
            data = b"\xff" + data
        with socket.create_connection((host, int(port)), 10) as s:
            try:
                s.sendall(data)
                s.recv(100)
            except OSError:
                pass


def hostile_peers(options):
    """Peers that send what is no request neither fill the log nor keep a neighbour from being answered."""
    with tempfile.NamedTemporaryFile("r") as log, open(log.name, "a") as sink:
        case = Case(options, sink)
        try:
            case.serves("t")
            neighbour = case.connect()
            began = time.monotonic()
            threads = [threading.Thread(target=hostile, args=(case.address, HOSTILE_CONNECTIONS // 4, seed)) for seed in range(4)]
            for thread in threads:
                thread.start()
            slowest = 0
            while any(thread.is_alive() for thread in threads):
                asked = time.monotonic()
                equal(neighbour.fetch("t"), 0, "fetching beside hostile peers")
                slowest = max(slowest, time.monotonic() - asked)
                time.sleep(0.05)
            took = time.monotonic() - began
            case.serves("u")
            case.stops()
            lines = log.readlines()
            allowed = LINES_PER_INTERVAL_MAX * (took // 10 + 2)
            print("     %d connections in %.1f s left %d lines; a neighbour waited %.2f s at most" %
                  (HOSTILE_CONNECTIONS, took, len(lines), slowest))
            assert len(lines) <= allowed, "%d lines, more than %d" % (len(lines), allowed)
            assert any("more lines about connections closed for what they sent" in line for line in lines), "no summary"
            assert slowest < 5, "a neighbour waited for %.1f s" % slowest
        finally:
            case.close()


def equal(got, wanted, what):
    assert got == wanted, "%s: got %r, wanted %r" % (what, got, wanted)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kilo", default="target/debug/kilo", help="the binary under test (default %(default)s)")
    options = parser.parse_args()
    failed = 0
    cases = [reader_goes_away, reader_stands_still, nothing_can_be_written, log_file_is_full, hostile_peers]
    for case in cases:
        try:
            case(options)
        except Exception as error:
            failed += 1
            print("FAIL %s: %s: %s" % (case.__name__, type(error).__name__, error))
        else:
            print("ok   %s" % case.__name__)
        sys.stdout.flush()
    print("%d passed, %d failed" % (len(cases) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
