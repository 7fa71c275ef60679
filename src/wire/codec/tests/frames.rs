//! What is taken and what is refused, frame by frame: see the module docs of the codecs for why.

use super::*;

const CONTENT: &[u8] = b"the content";

/// Who notices that a frame cannot be read by all.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    /// All can.
    Taken,
    /// The look at the framing alone.
    Framing(&'static str),
    /// Only decompressing.
    Content(&'static str),
}

use Verdict::{Content, Framing, Taken};

#[track_caller]
fn check(codec: Codec, table: &[(&str, Vec<u8>, Verdict)]) {
    for (what, bytes, verdict) in table {
        let by_framing = check_framing(codec, bytes).map_err(|error| error.to_string());
        let by_content = decompress(codec, bytes, 1 << 20).map_err(|error| error.to_string());
        let is_for = |result: &Result<(), String>, reason: &str| {
            result.as_ref().is_err_and(|error| *error == format!("{} data is damaged: {reason}", codec.name()))
        };
        let is_right = match verdict {
            Taken => by_framing.is_ok() && by_content.as_deref() == Ok(CONTENT),
            Framing(reason) => is_for(&by_framing, reason) && is_for(&by_content.clone().map(drop), reason),
            Content(reason) => by_framing.is_ok() && is_for(&by_content.clone().map(drop), reason),
        };
        assert!(is_right, "{codec:?}, {what}: framing {by_framing:?}, content {by_content:?}, expected {verdict:?}");
    }
}

fn concat(pieces: &[&[u8]]) -> Vec<u8> {
    pieces.concat()
}

/// A frame header with its checksum.
fn lz4_header(flags: u8, block_descriptor: u8, content_bytes: &[u8]) -> Vec<u8> {
    let described = concat(&[&[flags, block_descriptor], content_bytes]);
    let checksum = (twox_hash::XxHash32::oneshot(0, &described) >> 8) as u8;
    concat(&[&[0x04, 0x22, 0x4d, 0x18], &described, &[checksum]])
}

fn lz4_stored(data: &[u8]) -> Vec<u8> {
    concat(&[&(data.len() as u32 | 1 << 31).to_le_bytes(), data])
}

fn lz4_block(data: &[u8]) -> Vec<u8> {
    concat(&[&(data.len() as u32).to_le_bytes(), data])
}

fn xxh32(data: &[u8]) -> [u8; 4] {
    twox_hash::XxHash32::oneshot(0, data).to_le_bytes()
}

/// Behind the last block.
const LZ4_END: [u8; 4] = [0; 4];

/// A frame with the flags and the block descriptor.
fn lz4_frame(flags: u8, block_descriptor: u8) -> Vec<u8> {
    concat(&[&lz4_header(flags, block_descriptor, &[]), &lz4_stored(CONTENT), &LZ4_END])
}

/// A frame of the blocks.
fn lz4_blocks(blocks: &[&[u8]]) -> Vec<u8> {
    concat(&[&lz4_header(0x60, 0x40, &[]), &blocks.concat(), &LZ4_END])
}

#[test]
fn lz4_headers() {
    let plain = lz4_frame(0x60, 0x40);
    let skippable = concat(&[&[0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 7, 7], &plain]);
    let legacy = concat(&[&[0x02, 0x21, 0x4c, 0x18], &lz4_block(&concat(&[&[0xb0], CONTENT]))]);
    check(
        Codec::Lz4,
        &[
            ("blocks of up to 4 MiB", lz4_frame(0x60, 0x70), Taken),
            ("nothing at all", vec![], Framing("cut short")),
            ("the format before frames", legacy, Framing("not an LZ4 frame")),
            ("a skippable frame before it", skippable, Framing("not an LZ4 frame")),
            ("version 0", lz4_frame(0x20, 0x40), Framing("unknown frame version")),
            ("version 3", lz4_frame(0xe0, 0x40), Framing("unknown frame version")),
            ("dependent blocks", lz4_frame(0x40, 0x40), Framing("blocks that depend on each other are not supported")),
            ("a reserved flag", lz4_frame(0x62, 0x40), Framing("a reserved bit is set in the frame's flags")),
            ("a dictionary", lz4_frame(0x61, 0x40), Framing("dictionaries are not supported")),
            (
                "the lowest bit of the descriptor",
                lz4_frame(0x60, 0x41),
                Framing("a reserved bit is set in the frame's block descriptor"),
            ),
            (
                "the highest bit of the descriptor",
                lz4_frame(0x60, 0xc0),
                Framing("a reserved bit is set in the frame's block descriptor"),
            ),
            ("block size 3", lz4_frame(0x60, 0x30), Framing("unknown block size")),
            (
                "a wrong header checksum",
                concat(&[&plain[..6], &[plain[6] ^ 1], &plain[7..]]),
                Framing("wrong checksum of the frame header"),
            ),
        ],
    );
}

#[test]
fn lz4_blocks_and_ends() {
    let plain = lz4_frame(0x60, 0x40);
    let block = lz4_stored(CONTENT);
    let with_size = |size: u64| concat(&[&lz4_header(0x68, 0x40, &size.to_le_bytes()), &block, &LZ4_END]);
    let summed =
        |block_sum, content_sum| concat(&[&lz4_header(0x74, 0x40, &[]), &block, block_sum, &LZ4_END, content_sum]);
    let literals = concat(&[&[0xb0], CONTENT]);
    check(
        Codec::Lz4,
        &[
            ("a stored block", plain.clone(), Taken),
            ("a compressed block", lz4_blocks(&[&lz4_block(&literals)]), Taken),
            ("two blocks", lz4_blocks(&[&lz4_stored(&CONTENT[..4]), &lz4_stored(&CONTENT[4..])]), Taken),
            ("the right content size", with_size(11), Taken),
            ("a content size that is not known", with_size(0), Taken),
            ("the wrong content size", with_size(12), Content("the frame holds another number of bytes than it says")),
            ("both checksums", summed(&xxh32(CONTENT), &xxh32(CONTENT)), Taken),
            ("a wrong block checksum", summed(&[0; 4], &xxh32(CONTENT)), Content("wrong checksum of a block")),
            ("a wrong content checksum", summed(&xxh32(CONTENT), &[0; 4]), Content("wrong checksum of the content")),
            (
                "a block of more than 64 KiB",
                lz4_blocks(&[&lz4_stored(&vec![0; 65_537])]),
                Framing("a block is larger than the frame allows"),
            ),
            (
                "an empty stored block in the middle",
                lz4_blocks(&[&block[..], &lz4_stored(&[]), &block[..]]),
                Framing("a stored block is empty"),
            ),
            (
                "an empty compressed block",
                lz4_blocks(&[&block[..], &lz4_block(&[0])]),
                Content("a block holds nothing"),
            ),
            (
                "an offset of zero",
                lz4_blocks(&[&lz4_block(b"\x40abcd\x00\x00\x50fghij")]),
                Content("0 is not a valid match offset"),
            ),
            ("no end mark", plain[..plain.len() - 4].to_vec(), Framing("cut short")),
            ("half a block length behind", plain[..plain.len() - 2].to_vec(), Framing("cut short")),
            (
                "two frames",
                concat(&[&lz4_blocks(&[&lz4_stored(&CONTENT[..4])]), &lz4_blocks(&[&lz4_stored(&CONTENT[4..])])]),
                Framing("bytes follow the frame"),
            ),
            ("a byte behind", concat(&[&plain, &[0]]), Framing("bytes follow the frame")),
            ("an empty frame behind", concat(&[&plain, &lz4_blocks(&[])]), Framing("bytes follow the frame")),
        ],
    );
}

/// What the reference decoder refuses at the end of a block, and `lz4_flex` does not.
#[test]
fn lz4_ends_of_blocks() {
    const NOT_LITERAL: Verdict = Content("the end of a block is not literal bytes");
    let blocks = |data: &[u8]| concat(&[&lz4_header(0x60, 0x40, &[]), &lz4_block(data), &LZ4_END]);
    let verdict = |data: &[u8]| decompress(Codec::Lz4, &blocks(data), 1 << 20).map(|bytes| bytes.len());
    // Four literals, a match of four at offset four, then the last literals.
    assert_eq!(verdict(b"\x40abcd\x04\x00\x50fghij").ok(), Some(13));
    check(
        Codec::Lz4,
        &[
            ("four literals at the end", blocks(b"\x40abcd\x04\x00\x40fghi"), NOT_LITERAL),
            ("an empty sequence at the end", blocks(b"\x40abcd\x04\x00\x00"), NOT_LITERAL),
        ],
    );
    // A block that is filled by a long match and literals behind it, up to the 64 KiB.
    let filled = |literals: usize| {
        let more = 65_536 - 4 - 19 - literals;
        let mut data = b"\x4fabcd\x04\x00".to_vec();
        data.extend(std::iter::repeat_n(255, more / 255));
        data.push((more % 255) as u8);
        data.push((literals as u8) << 4);
        data.extend(vec![b'x'; literals]);
        data
    };
    assert_eq!(verdict(&filled(5)).ok(), Some(65_536));
    check(Codec::Lz4, &[("four literals up to the most that fits", blocks(&filled(4)), NOT_LITERAL)]);
}

/// Sequences of (literals, offset, bytes copied), and the literals at the end.
fn lz4_sequences(sequences: &[(usize, u16, usize)], last: usize) -> Vec<u8> {
    let lengthened = |out: &mut Vec<u8>, length: usize| {
        if let Some(more) = length.checked_sub(15) {
            out.extend(std::iter::repeat_n(255, more / 255));
            out.push((more % 255) as u8);
        }
    };
    let mut out = Vec::new();
    let mut literal = 0_u8;
    for (literals, copy) in sequences.iter().map(|it| (it.0, Some((it.1, it.2 - 4)))).chain([(last, None)]) {
        out.push((literals.min(15) << 4 | copy.map_or(0, |(_, length)| length.min(15))) as u8);
        lengthened(&mut out, literals);
        for _ in 0..literals {
            literal = literal.wrapping_mul(5).wrapping_add(3);
            out.push(literal & 0x77);
        }
        if let Some((offset, length)) = copy {
            out.extend(offset.to_le_bytes());
            lengthened(&mut out, length);
        }
    }
    out
}

proptest::proptest! {
    /// The look at the end alone overlooks no block that breaks the rules.
    #[test]
    fn lz4_bad_ends_are_seen_from_the_end(
        sequences in proptest::collection::vec((0..20_usize, 1..20_u16, 4..600_usize), 0..4),
        last in 0..20_usize,
        to_spare in 0..16_usize,
    ) {
        let block = lz4_sequences(&sequences, last);
        let mut content = vec![0; 4096];
        if let Ok(len) = lz4_flex::block::decompress_into(&block, &mut content) {
            let bytes_max = len + to_spare;
            let is_right = lz4::ends_as_specified(&block, bytes_max);
            proptest::prop_assert!(is_right || lz4::may_end_badly(&block, &content[..len], bytes_max));
        }
    }
}

fn zstd_raw(header: &[u8], checksum: &[u8]) -> Vec<u8> {
    let block = ((CONTENT.len() << 3 | 1) as u32).to_le_bytes();
    concat(&[&[0x28, 0xb5, 0x2f, 0xfd], header, &block[..3], CONTENT, checksum])
}

fn zstd_window(log: u8, eighths: u8) -> Vec<u8> {
    zstd_raw(&[0x00, (log - 10) << 3 | eighths], &[])
}

#[test]
fn zstd_frames() {
    const TOO_LARGE: Verdict = Framing("the frame asks for a window of more than 128 MiB");
    let plain = zstd_window(20, 0);
    let skippable = [0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 7, 7];
    let checksum = ::zstd::bulk::Compressor::new(1)
        .and_then(|mut compressor| {
            compressor.include_checksum(true)?;
            compressor.compress(CONTENT)
        })
        .expect("compresses");
    let mut wrong_checksum = checksum.clone();
    *wrong_checksum.last_mut().expect("it is not empty") ^= 1;
    let size = |size: u64| zstd_raw(&concat(&[&[0xe0], &size.to_le_bytes()]), &[]);
    check(
        Codec::Zstd,
        &[
            ("a window of 1 MiB", plain.clone(), Taken),
            ("a window of 1 KiB", zstd_window(10, 0), Taken),
            ("a window of 128 MiB", zstd_window(27, 0), Taken),
            ("a window of 144 MiB", zstd_window(27, 1), TOO_LARGE),
            ("a window of 256 MiB", zstd_window(28, 0), TOO_LARGE),
            ("a window of 2 GiB", zstd_window(31, 0), TOO_LARGE),
            ("a window of 2 TiB", zstd_window(41, 0), TOO_LARGE),
            ("a single segment", zstd_raw(&[0x20, 11], &[]), Taken),
            ("its size in eight bytes", size(11), Taken),
            ("a single segment of more than 128 MiB", size((128 << 20) + 1), TOO_LARGE),
            ("a size that is wrong", size(12), Content("Data corruption detected")),
            ("a size without a single segment", zstd_raw(&[0x80, 0x50, 11, 0, 0, 0], &[]), Taken),
            ("a checksum", checksum.clone(), Taken),
            ("a wrong checksum", wrong_checksum, Content("Restored data doesn't match checksum")),
            ("the unused bit", zstd_raw(&[0x10, 0x50], &[]), Taken),
            ("the reserved bit", zstd_raw(&[0x08, 0x50], &[]), Framing("a reserved bit is set in the frame header")),
            ("a dictionary", zstd_raw(&[0x01, 0x50, 9], &[]), Framing("dictionaries are not supported")),
            ("the dictionary 0, which is none", zstd_raw(&[0x01, 0x50, 0], &[]), Taken),
            ("nothing at all", vec![], Framing("cut short")),
            ("nothing behind the header", plain[..6].to_vec(), Framing("Src size is incorrect")),
            ("no last block", concat(&[&plain[..6], &[0x58, 0, 0], CONTENT]), Framing("Src size is incorrect")),
            ("a reserved type of block", concat(&[&plain[..6], &[0x5f, 0, 0]]), Framing("Data corruption detected")),
            (
                "a format before version 1",
                concat(&[&[0x27, 0xb5, 0x2f, 0xfd], &plain[4..]]),
                Framing("not a zstd frame of version 1"),
            ),
            (
                "a skippable frame before it",
                concat(&[&skippable, &plain]),
                Framing("a skippable frame is not supported"),
            ),
            ("a skippable frame behind it", concat(&[&plain, &skippable]), Framing("bytes follow the frame")),
            ("two frames", concat(&[&plain, &plain]), Framing("bytes follow the frame")),
            ("a byte behind", concat(&[&plain, &[0]]), Framing("bytes follow the frame")),
        ],
    );
}

/// A member with one stored block; `more` is what the flags announce.
fn gzip_member(flags: u8, more: &[u8]) -> Vec<u8> {
    let len = CONTENT.len() as u16;
    let mut sum = flate2::Crc::new();
    sum.update(CONTENT);
    concat(&[
        &[0x1f, 0x8b, 8, flags, 0, 0, 0, 0, 0, 0xff],
        more,
        &[1],
        &len.to_le_bytes(),
        &(!len).to_le_bytes(),
        CONTENT,
        &sum.sum().to_le_bytes(),
        &u32::from(len).to_le_bytes(),
    ])
}

#[test]
fn gzip_members() {
    let plain = gzip_member(0, &[]);
    let end = plain.len();
    let with = |at: usize| {
        let mut bytes = plain.clone();
        bytes[at] ^= 1;
        bytes
    };
    let mut header_sum = flate2::Crc::new();
    header_sum.update(&[0x1f, 0x8b, 8, 2, 0, 0, 0, 0, 0, 0xff]);
    let header_sum = (header_sum.sum() as u16).to_le_bytes();
    const MISMATCH: Verdict = Content("corrupt gzip stream does not have a matching checksum");
    const FOLLOW: Verdict = Content("bytes follow the member");
    check(
        Codec::Gzip,
        &[
            ("one member", plain.clone(), Taken),
            ("a name", gzip_member(8, b"name\0"), Taken),
            ("an extra field and a comment", gzip_member(0x14, b"\x02\0xxcomment\0"), Taken),
            ("a header checksum", gzip_member(2, &header_sum), Taken),
            ("a wrong header checksum", gzip_member(2, &[0, 0]), MISMATCH),
            ("a wrong checksum", with(end - 8), MISMATCH),
            ("a wrong size", with(end - 4), MISMATCH),
            ("a reserved flag", gzip_member(0x20, &[]), Framing("a reserved flag is set in the header")),
            ("another method", with(2), Framing("unknown method of compression")),
            ("zlib's framing", vec![0x78, 0x9c, 1, 0, 0, 0xff, 0xff, 0, 0, 0, 1], Framing("not a gzip member")),
            ("nothing at all", vec![], Framing("not a gzip member")),
            ("a header alone", plain[..10].to_vec(), Framing("cut short")),
            ("half a trailer", plain[..end - 4].to_vec(), Content("unexpected end of file")),
            ("two members", concat(&[&plain, &plain]), FOLLOW),
            ("a zero behind", concat(&[&plain, &[0]]), FOLLOW),
        ],
    );
}

fn snappy_header(version: [u8; 4], compatible: [u8; 4]) -> Vec<u8> {
    concat(&[&[0x82], b"SNAPPY\0", &version, &compatible])
}

#[test]
fn snappy_blocks_and_streams() {
    let raw = concat(&[&[11, 10 << 2], CONTENT]);
    let block = concat(&[&(raw.len() as u32).to_be_bytes(), &raw]);
    let stream = |blocks: &[&[u8]]| concat(&[&snappy_header([0, 0, 0, 1], [0, 0, 0, 1]), &blocks.concat()]);
    let version = |version, compatible| concat(&[&snappy_header(version, compatible), &block]);
    let plain = stream(&[&block]);
    check(
        Codec::Snappy,
        &[
            ("a raw block", raw.clone(), Taken),
            ("a stream", plain.clone(), Taken),
            ("a block of nothing", stream(&[&[0, 0, 0, 1, 0], &block]), Taken),
            ("the wrong byte order in the version", version([1, 0, 0, 0], [1, 0, 0, 0]), Taken),
            ("another compatible version", version([0, 0, 0, 2], [0, 0, 0, 9]), Taken),
            ("version 0", version([0; 4], [0, 0, 0, 1]), Framing("the version in the stream header is below 1")),
            ("nothing at all", vec![], Framing("a block has no bytes")),
            ("a header alone", stream(&[]), Framing("no block follows the stream header")),
            ("half a header", plain[..12].to_vec(), Framing("the stream header is cut short")),
            ("a block without bytes", stream(&[&[0; 4], &block]), Framing("a block has no bytes")),
            ("a negative length", stream(&[&[0xff; 4], &raw]), Framing("a block length is negative")),
            ("half a length behind", concat(&[&plain, &[0, 0]]), Framing("a block length is cut short")),
            ("a block cut short", plain[..plain.len() - 1].to_vec(), Framing("a block is cut short")),
            ("two streams", concat(&[&plain, &plain]), Framing("a second stream follows the first")),
            (
                "a claim that cannot be",
                concat(&[&[0xff, 0xff, 0x7f], &raw[1..]]),
                Framing("a block claims more bytes than it can hold"),
            ),
            (
                "a claim that is wrong",
                concat(&[&[12], &raw[1..]]),
                Content("snappy: corrupt input (header mismatch; expected 12 decompressed bytes but got 11)"),
            ),
            (
                "a byte behind",
                concat(&[&raw, &[0]]),
                Content(
                    "snappy: corrupt input (expected literal read of length 1; remaining src: 0; remaining dst: 0)",
                ),
            ),
        ],
    );
}
