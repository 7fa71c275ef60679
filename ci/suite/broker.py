"""One broker under test: started on a free port in a temporary folder, stopped, killed, started again.

With `--bootstrap` and the command options the same suites run against any other broker that speaks the protocol,
which tells whether a failure is the suite's or the broker's.
"""
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time


def add_arguments(parser):
    parser.add_argument("--kilo", default="target/debug/kilo", help="the binary under test (default %(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="a setting of the broker (repeatable)")
    parser.add_argument("--bootstrap", help="another broker, already running, at this address")
    parser.add_argument("--start-cmd", help="starts that broker again with the same data; returns at once")
    parser.add_argument("--stop-cmd", help="stops it cleanly; returns when it is down")
    parser.add_argument("--kill-cmd", help="kills it; returns when it is down")
    parser.add_argument("--data-dir", help="its data folder")


def free_port():
    """A port that the system picks. It stays the same over restarts, as clients remember it."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Kilo:
    """A `kilo serve` that this process started, and nothing else, is what gets stopped and killed."""

    def __init__(self, options):
        self.folder = tempfile.mkdtemp(prefix="kilo-suite-")
        self.data_dir = os.path.join(self.folder, "data")
        self.log = os.path.join(self.folder, "log")
        self.port = free_port()
        self.bootstrap = "127.0.0.1:%d" % self.port
        self.command = [os.path.abspath(options.kilo), "serve", "--set", "listeners=" + self.bootstrap,
                        "--set", "log.dirs=" + self.data_dir]
        for setting in options.set:
            self.command += ["--set", setting]
        self.process = None

    def spawn(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)

    def start(self):
        self.spawn()
        end = time.monotonic() + 30
        while not listens(self.bootstrap):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the broker did not start (exit code %s):\n%s" % (self.process.poll(), self.tail()))
            time.sleep(0.005)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        if code != 0:
            raise RuntimeError("SIGTERM ended the broker with exit code %s:\n%s" % (code, self.tail()))

    def kill(self):
        self.process.kill()
        self.process.wait(30)

    def start_and_kill(self, seconds):
        """A kill in the middle of recovery, most likely."""
        self.spawn()
        time.sleep(seconds)
        self.kill()

    def tail(self, lines=30):
        with open(self.log, errors="replace") as log:
            return "".join(log.readlines()[-lines:])

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)


class Other:
    """Any other broker, through the commands given."""

    def __init__(self, options):
        self.options = options
        self.bootstrap = options.bootstrap
        self.data_dir = options.data_dir

    def start(self):
        if listens(self.bootstrap):
            return
        subprocess.run(self.options.start_cmd, shell=True, check=True, stdin=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while not listens(self.bootstrap):
            if time.monotonic() > end:
                raise RuntimeError("the broker did not start")
            time.sleep(0.05)

    def stop(self):
        subprocess.run(self.options.stop_cmd, shell=True, check=True)

    def kill(self):
        subprocess.run(self.options.kill_cmd, shell=True, check=True)

    def tail(self, lines=30):
        return ""

    def close(self):
        pass


def broker(options):
    return Other(options) if options.bootstrap else Kilo(options)


def listens(address):
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), 0.5).close()
        return True
    except OSError:
        return False


def stored_batches(data_dir, topic, partition=0):
    """Codec and record count of every batch in a partition's segment files (with or without Kilo's frame magic)."""
    out = []
    for folder, _, files in sorted(os.walk(data_dir)):
        if os.path.basename(folder) != "%s-%d" % (topic, partition):
            continue
        for name in sorted(n for n in files if n.endswith(".log")):
            with open(os.path.join(folder, name), "rb") as f:
                data = f.read()
            at = 0
            while at + 61 <= len(data):
                if data[at:at + 8] == b"\0\0\0\0KILO":
                    at += 8
                length, = struct.unpack_from(">i", data, at + 8)
                if length < 49:
                    break  # space that was set aside
                attributes, = struct.unpack_from(">h", data, at + 21)
                count, = struct.unpack_from(">i", data, at + 57)
                out.append((attributes & 7, count))
                at += 12 + length
    return out
