"""Compressed parts of batches, whole and damaged: every bit flipped, and changes of structure."""
import collections
import gzip
import struct
import zlib

import lz4.frame
import snappy
import zstandard

# A compressed part: `variant` names how it was compressed, `kind` what was changed, `detail` where.
Case = collections.namedtuple("Case", "codec variant kind detail part count")
UNCHANGED = "unchanged"
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
COUNT = 6


class Alone(bytes):
    """A compressed part with one record."""



def varint(n):
    n = (n << 1) ^ (n >> 63)
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def record(index, value):
    body = b"\0" + varint(0) + varint(index) + varint(-1) + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


RECORDS = b"".join(record(i, b"value %d, the same again" % i) for i in range(COUNT))


def is_records(content, count):
    """Whether the content is that many records, each in its place."""
    at = 0

    def read():
        nonlocal at
        value = shift = 0
        while True:
            byte = content[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return (value >> 1) ^ -(value & 1)

    try:
        for index in range(count):
            length = read()
            end = at + length
            at += 1
            read()
            if read() != index or end > len(content):
                return False
            at = end
    except IndexError:
        return False
    return at == len(content)


def xxh32(data):
    """xxHash-32 with seed 0."""
    m, p = 0xFFFFFFFF, (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)

    def rotl(x, r):
        return (x << r | x >> 32 - r) & m

    length = len(data)
    if length >= 16:
        v = [(p[0] + p[1]) & m, p[1], 0, -p[0] & m]
        while len(data) >= 16:
            for i, word in enumerate(struct.unpack("<4I", data[:16])):
                v[i] = rotl((v[i] + word * p[1]) & m, 13) * p[0] & m
            data = data[16:]
        h = sum(rotl(x, r) for x, r in zip(v, (1, 7, 12, 18))) & m
    else:
        h = p[4]
    h = (h + length) & m
    while len(data) >= 4:
        h = rotl((h + int.from_bytes(data[:4], "little") * p[2]) & m, 17) * p[3] & m
        data = data[4:]
    for byte in data:
        h = rotl((h + byte * p[4]) & m, 11) * p[0] & m
    h = (h ^ h >> 15) * p[1] & m
    h = (h ^ h >> 13) * p[2] & m
    return h ^ h >> 16


# LZ4

LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_END = b"\0\0\0\0"
SKIPPABLE = b"\x50\x2a\x4d\x18\x02\0\0\0xx"


def lz4_header(flags=0x60, descriptor=0x40, more=b""):
    described = bytes([flags, descriptor]) + more
    return LZ4_MAGIC + described + bytes([xxh32(described) >> 8 & 255])


def lz4_stored(data):
    return struct.pack("<I", len(data) | 1 << 31) + data


def lz4_block(data):
    return struct.pack("<I", len(data)) + data


def lz4_frame(*blocks, **header):
    return lz4_header(**header) + b"".join(blocks) + LZ4_END


def lz4_literals(data):
    """Compressed data that copies nothing; the length is of 15 and more."""
    rest, lengths = len(data) - 15, b""
    while rest >= 255:
        lengths, rest = lengths + b"\xff", rest - 255
    return b"\xf0" + lengths + bytes([rest]) + data


def lz4_variants():
    full = lz4.frame.compress(RECORDS, block_linked=False, content_checksum=True, block_checksum=True, store_size=True)
    plain = lz4.frame.compress(RECORDS, block_linked=False, store_size=False)
    size = struct.unpack_from("<I", full, 15)[0]
    yield ("lz4 with checksums and size", full,
           [("magic", 4), ("flags", 5), ("descriptor", 6), ("size", 14), ("header checksum", 15), ("block size", 19),
            ("block", 19 + size), ("block checksum", 23 + size), ("end mark", 27 + size), ("content checksum", len(full))])
    yield ("lz4", plain, [("magic", 4), ("flags", 5), ("descriptor", 6), ("header checksum", 7), ("block size", 11),
                          ("block", len(plain) - 4), ("end mark", len(plain))])


def lz4_changes():
    block = lz4_stored(RECORDS)
    plain = lz4_frame(block)
    for bit in range(8):
        yield "flags and their checksum", bit, lz4_frame(block, flags=0x60 ^ 1 << bit)
        yield "descriptor and its checksum", bit, lz4_frame(block, descriptor=0x40 ^ 1 << bit)
    for size in range(8):
        yield "block size in the descriptor", size, lz4_frame(block, descriptor=size << 4)
    right, half = struct.pack("<I", xxh32(RECORDS)), len(RECORDS) // 2
    yield "right content checksum", "", lz4_frame(block, flags=0x64) + right
    yield "wrong content checksum", "", lz4_frame(block, flags=0x64) + b"abcd"
    halves = lz4_stored(RECORDS[:half]), lz4_stored(RECORDS[half:])
    yield "two blocks", "", lz4_frame(*halves)
    yield "two blocks and content checksum", "", lz4_frame(*halves, flags=0x64) + right
    yield "right block checksum", "", lz4_frame(block + right, flags=0x70)
    yield "wrong block checksum", "", lz4_frame(block + b"abcd", flags=0x70)
    for what, size in ("right", len(RECORDS)), ("wrong", len(RECORDS) + 1), ("wrong", 1), ("zero", 0), ("huge", 1 << 62):
        yield what + " content size", size, lz4_frame(block, flags=0x68, more=struct.pack("<Q", size))
    yield "dictionary id", "", lz4_frame(block, flags=0x61, more=b"abcd")
    yield "dependent blocks", "", lz4_frame(block, flags=0x40)
    yield "two frames", "", lz4_frame(halves[0]) + lz4_frame(halves[1])
    yield "empty frame before", "", lz4_frame() + plain
    yield "bytes behind", "empty frame", plain + lz4_frame()
    yield "bytes behind", "zero", plain + b"\0"
    yield "bytes behind", "skippable frame", plain + SKIPPABLE
    yield "skippable frame before", "", SKIPPABLE + plain
    yield "legacy format", "", b"\x02\x21\x4c\x18" + lz4_block(lz4_literals(RECORDS))
    yield "no end mark", "", plain[:-4]
    yield "end mark cut", "", plain[:-2]
    yield "end mark with the top bit", "", plain[:-1] + b"\x80"
    yield "empty stored block", "before", lz4_frame(lz4_stored(b""), block)
    yield "empty stored block", "behind", lz4_frame(block, lz4_stored(b""))
    yield "empty compressed block", "before", lz4_frame(lz4_block(b"\0"), block)
    yield "empty compressed block", "between", lz4_frame(halves[0], lz4_block(b"\0"), halves[1])
    yield "empty compressed block", "behind", lz4_frame(block, lz4_block(b"\0"))
    yield "literals alone", "", lz4_frame(lz4_block(lz4_literals(RECORDS)))
    yield "block too large", "", lz4_frame(lz4_stored(record(0, bytes(66000))))
    data = lz4_literals(RECORDS) + b"\1\0"
    yield "block that becomes too large", "", lz4_frame(lz4_block(b"\xff" + data[1:] + b"\xff" * 300 + b"\0\x50abcde"))
    yield "nothing", "", b""
    yield "header alone", "", lz4_header()
    # A record that ends in a repetition and some literals: encoders leave at least five of them.
    for count in range(1, 8):
        whole = record(0, b"0123456789" * 3)
        copied = len(whole) - count - 4
        data = lz4_literals(whole[:copied]) + struct.pack("<H", 10) + bytes([count << 4]) + whole[-count:]
        yield "%s literals at the end" % ("enough" if count >= 5 else "too few"), count, Alone(lz4_frame(lz4_block(data)))
    for kind, offset in ("offset zero", 0), ("offset before the start", 0x7FFF):
        data = lz4_literals(RECORDS[:-10]) + struct.pack("<H", offset) + b"\x60" + RECORDS[-6:]
        yield kind, "", lz4_frame(lz4_block(data))


# zstd

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def zstd_block(data, last=True, kind=0):
    return (len(data) << 3 | kind << 1 | last).to_bytes(3, "little") + data


def zstd_frame(header, *blocks):
    return ZSTD_MAGIC + header + b"".join(blocks or [zstd_block(RECORDS)])


def zstd_variants():
    compressor = zstandard.ZstdCompressor(write_checksum=True, write_content_size=True)
    full = compressor.compress(RECORDS)
    streamed = zstandard.ZstdCompressor().compressobj()
    streamed = streamed.compress(RECORDS) + streamed.flush()
    yield ("zstd with checksum and size", full,
           [("magic", 4), ("descriptor", 5), ("size", 6), ("block header", 9), ("block", len(full) - 4),
            ("checksum", len(full))])
    yield ("zstd streamed", streamed,
           [("magic", 4), ("descriptor", 5), ("window", 6), ("block header", 9), ("block", len(streamed))])


def zstd_changes():
    plain, half, size = zstd_frame(b"\0\x50"), len(RECORDS) // 2, len(RECORDS)
    for log in (10, 11, 20, 23, 26, 27, 28, 31, 32, 41):
        for eighths in (0, 1, 7):
            kind = "window of up to 128 MiB" if log + eighths / 8 <= 27 else "larger window"
            yield kind, (log, eighths), zstd_frame(bytes([0, log - 10 << 3 | eighths]))
    for bit in (3, 4):
        yield "reserved bit" if bit == 3 else "unused bit", "", zstd_frame(bytes([1 << bit, 0x50]))
    for width, bits in (1, 1), (2, 2), (4, 3):
        yield "dictionary", width, zstd_frame(bytes([bits, 0x50]) + b"\x07" * width)
        yield "dictionary zero", width, zstd_frame(bytes([bits, 0x50]) + bytes(width))
    yield "size in one byte", "", zstd_frame(bytes([0x20, size]))
    yield "size in four bytes", "", zstd_frame(b"\xa0" + struct.pack("<I", size))
    yield "size in eight bytes", "", zstd_frame(b"\xe0" + struct.pack("<Q", size))
    for wrong in (0, 1, size - 1, size + 1, 1 << 27, (1 << 27) + 1, 1 << 40, 1 << 62):
        yield "wrong size", wrong, zstd_frame(b"\xe0" + struct.pack("<Q", wrong))
        yield "wrong size beside a window", wrong, zstd_frame(b"\xc0\x50" + struct.pack("<Q", wrong))
    two = zstd_block(RECORDS[:half], False), zstd_block(RECORDS[half:])
    yield "two blocks", "", zstd_frame(b"\0\x50", *two)
    yield "empty block", "", zstd_frame(b"\0\x50", zstd_block(b"", False), *two)
    yield "empty last block", "", zstd_frame(b"\0\x50", zstd_block(RECORDS, False), zstd_block(b""))
    yield "no last block", "", zstd_frame(b"\0\x50", zstd_block(RECORDS, False))
    yield "reserved block type", "", zstd_frame(b"\0\x50", zstd_block(RECORDS, True, 3))
    yield "two frames", "", b"".join(zstd_frame(b"\0\x50", zstd_block(part)) for part in (RECORDS[:half], RECORDS[half:]))
    yield "empty frame before", "", zstd_frame(b"\0\x50", zstd_block(b"")) + plain
    yield "bytes behind", "empty frame", plain + zstd_frame(b"\0\x50", zstd_block(b""))
    yield "bytes behind", "skippable frame", plain + SKIPPABLE
    yield "garbage behind", "zero", plain + b"\0"
    yield "garbage behind", "seven bytes", plain + b"garbage"
    yield "skippable frame before", "", SKIPPABLE + plain
    for version in range(0x22, 0x28):
        yield "magic of an older format", version, bytes([version]) + plain[1:]
    yield "magic of an older format", "0.1", b"\xfd\x2f\xb5\x1e" + plain[4:]
    yield "nothing", "", b""
    yield "header alone", "", plain[:6]


# gzip

def gzip_member(deflated, content=RECORDS, flags=0, more=b""):
    return (b"\x1f\x8b\x08" + bytes([flags]) + b"\0\0\0\0\0\xff" + more + deflated
            + struct.pack("<II", zlib.crc32(content), len(content)))


def stored(data):
    return b"\1" + struct.pack("<HH", len(data), len(data) ^ 0xFFFF) + data


class Bits:
    def __init__(self):
        self.out, self.count = 0, 0

    def put(self, value, width):
        self.out |= value << self.count
        self.count += width

    def code(self, lengths, symbol):
        """A Huffman code, most significant bit first."""
        code = 0
        for length in range(1, 16):
            for candidate, its in sorted(lengths.items()):
                if its == length:
                    if candidate == symbol:
                        self.put(int(format(code, "0%db" % length)[::-1], 2), length)
                        return
                    code += 1
            code <<= 1
        raise KeyError(symbol)

    def bytes(self):
        return self.out.to_bytes((self.count + 7) // 8, "little")


def dynamic(content, literals=None, distances=None, count_literals=None, count_distances=None, code_lengths=None):
    """One deflate block with codes of its own, complete or not; nothing is copied in it."""
    literals = literals or {s: 8 if s < 254 else 9 for s in range(258)}
    distances = {0: 1, 1: 1} if distances is None else distances
    count_literals = count_literals or max(max(literals) + 1, 257)
    count_distances = count_distances or max(distances, default=0) + 1
    code_lengths = code_lengths or {s: 4 for s in range(16)}
    order = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)
    bits = Bits()
    for value, width in (1, 1), (2, 2), (count_literals - 257, 5), (count_distances - 1, 5), (15, 4):
        bits.put(value, width)
    for symbol in order:
        bits.put(code_lengths.get(symbol, 0), 3)
    for symbol in range(count_literals):
        bits.code(code_lengths, literals.get(symbol, 0))
    for symbol in range(count_distances):
        bits.code(code_lengths, distances.get(symbol, 0))
    for byte in content:
        bits.code(literals, byte)
    if 256 in literals:
        bits.code(literals, 256)
    return bits.bytes()


def gzip_variants():
    whole = gzip.compress(RECORDS, mtime=0)
    yield ("gzip", whole, [("magic", 2), ("method", 3), ("flags", 4), ("time and system", 10), ("deflate", len(whole) - 8),
                           ("checksum", len(whole) - 4), ("size", len(whole))])


def gzip_changes():
    deflated, half = stored(RECORDS), len(RECORDS) // 2
    plain = gzip_member(deflated)
    header = b"\x1f\x8b\x08\x02\0\0\0\0\0\xff"
    yield "stored block", "", plain
    yield "header checksum", "right", gzip_member(deflated, flags=2, more=struct.pack("<H", zlib.crc32(header) & 0xFFFF))
    yield "wrong header checksum", "", gzip_member(deflated, flags=2, more=b"ab")
    yield "name, comment, extra field", "name", gzip_member(deflated, flags=8, more=b"name\0")
    yield "name, comment, extra field", "all", gzip_member(deflated, flags=0x1D, more=b"\2\0xxname\0comment\0")
    for bit in (5, 6, 7):
        yield "reserved flag", bit, gzip_member(deflated, flags=1 << bit)
    yield "half a trailer", "", plain[:-4]
    yield "no trailer", "", plain[:-8]
    yield "two members", "", b"".join(gzip_member(stored(part), part) for part in (RECORDS[:half], RECORDS[half:]))
    yield "empty member before", "", gzip_member(stored(b""), b"") + plain
    yield "bytes behind", "empty member", plain + gzip_member(stored(b""), b"")
    yield "bytes behind", "zero", plain + b"\0"
    yield "bytes behind", "garbage", plain + b"garbage"
    yield "bytes behind", "much garbage", plain + b"garbage" * 5
    yield "zlib's framing", "", zlib.compress(RECORDS)
    yield "no framing", "", deflated
    yield "nothing", "", b""
    yield "header alone", "", plain[:10]
    complete = {s: 8 if s < 254 else 9 for s in range(258)}
    yield "codes of its own", "", gzip_member(dynamic(RECORDS))
    yield "one distance code of one bit", "", gzip_member(dynamic(RECORDS, distances={0: 1}))
    yield "no distance code", "", gzip_member(dynamic(RECORDS, distances={}))
    yield "incomplete distance codes", "one of two bits", gzip_member(dynamic(RECORDS, distances={0: 2}))
    yield "incomplete distance codes", "two of two bits", gzip_member(dynamic(RECORDS, distances={0: 2, 1: 2}))
    yield "oversubscribed distance codes", "", gzip_member(dynamic(RECORDS, distances={0: 1, 1: 1, 2: 1}))
    for count in (31, 32):
        yield "more than 30 distance codes", count, gzip_member(dynamic(RECORDS, count_distances=count))
    for count in (287, 288):
        yield "more than 286 literal codes", count, gzip_member(dynamic(RECORDS, count_literals=count))
    yield "no code for the end", "", gzip_member(dynamic(RECORDS, {s: 8 for s in range(256)}))
    yield "incomplete literal codes", "", gzip_member(dynamic(RECORDS, {s: 9 for s in complete}))
    yield "incomplete code lengths", "", gzip_member(dynamic(RECORDS, code_lengths={s: 5 for s in range(16)}))


# snappy

XERIAL = b"\x82SNAPPY\0"
XERIAL_HEADER = XERIAL + b"\0\0\0\1\0\0\0\1"


def chunk(data):
    return struct.pack(">i", len(data)) + data


def snappy_variants():
    raw = snappy.compress(RECORDS)
    yield "snappy", raw, [("length", 2), ("elements", len(raw))]
    framed = XERIAL_HEADER + chunk(raw)
    yield ("snappy framed", framed, [("magic", 8), ("version", 12), ("compatible version", 16), ("chunk length", 20),
                                     ("length", 22), ("elements", len(framed))])


def snappy_changes():
    raw, half = snappy.compress(RECORDS), len(RECORDS) // 2
    framed = XERIAL_HEADER + chunk(raw)
    halves = chunk(snappy.compress(RECORDS[:half])), chunk(snappy.compress(RECORDS[half:]))
    yield "two chunks", "", XERIAL_HEADER + b"".join(halves)
    yield "two streams", "", XERIAL_HEADER + halves[0] + XERIAL_HEADER + halves[1]
    yield "header behind", "", framed + XERIAL_HEADER
    yield "empty chunk", "before", XERIAL_HEADER + chunk(b"") + chunk(raw)
    yield "empty chunk", "behind", framed + chunk(b"")
    yield "chunk of nothing", "before", XERIAL_HEADER + chunk(b"\0") + chunk(raw)
    yield "chunk of nothing", "behind", framed + chunk(b"\0")
    for count in (1, 2, 3):
        yield "part of a chunk length behind", count, framed + bytes(count)
    yield "chunk cut short", "", framed[:-1]
    yield "negative chunk length", "", XERIAL_HEADER + b"\xff\xff\xff\xff" + raw
    yield "huge chunk length", "", XERIAL_HEADER + b"\x7f\xff\xff\xff" + raw
    for version, kind in ((0, "version zero"), (-1, "negative version"), (2, "version 2"), (1 << 24, "wrong byte order")):
        yield kind, "", XERIAL + struct.pack(">ii", version, version) + chunk(raw)
    yield "compatible version 9", "", XERIAL + struct.pack(">ii", 1, 9) + chunk(raw)
    yield "header alone", "", XERIAL_HEADER
    yield "half a header", "", XERIAL_HEADER[:12]
    yield "nothing", "", b""
    body = raw[2:]
    for claimed in (0, len(RECORDS) - 1, len(RECORDS) + 1, 1 << 31, (1 << 32) - 1):
        yield "wrong length", claimed, varint_unsigned(claimed) + body
    yield "longer form of the length", "", bytes([raw[0], raw[1] | 128, 0]) + body
    yield "byte behind", "", raw + b"\0"
    yield "literal of nothing behind", "", raw + b"\xf0"
    yield "offset zero", "", varint_unsigned(len(RECORDS)) + bytes([60 << 2, len(RECORDS) - 5]) + RECORDS[:-4] + b"\1\0"


def varint_unsigned(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def flips(codec, variant, whole, fields):
    yield Case(codec, variant, UNCHANGED, "", whole, COUNT)
    for bit in range(len(whole) * 8):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        field = next(name for name, end in fields if bit // 8 < end)
        yield Case(codec, variant, "bit of " + field, bit, bytes(changed), COUNT)


def cases():
    out = []
    for codec, variants, changes in ((GZIP, gzip_variants, gzip_changes), (SNAPPY, snappy_variants, snappy_changes),
                                     (LZ4, lz4_variants, lz4_changes), (ZSTD, zstd_variants, zstd_changes)):
        for variant, whole, fields in variants():
            out += flips(codec, variant, whole, fields)
        name = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}[codec]
        for kind, detail, part in changes():
            out.append(Case(codec, name, kind, detail, part, 1 if isinstance(part, Alone) else COUNT))
    return out
