//! Codecs against their reference writers, truncation at every byte, and hostile claims.

use super::*;

mod frames;

fn sample(len: usize) -> Vec<u8> {
    (0..len).map(|i| if i % 7 < 4 { b"the same again "[i % 15] } else { (i * 31 % 251) as u8 }).collect()
}

fn xerial(blocks: &[&[u8]]) -> Vec<u8> {
    let mut out = vec![0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];
    for block in blocks {
        let compressed = snap::raw::Encoder::new().compress_vec(block).expect("in-memory compression");
        out.extend_from_slice(&(compressed.len() as u32).to_be_bytes());
        out.extend_from_slice(&compressed);
    }
    out
}

#[test]
fn every_codec_gives_back_what_went_in() {
    for codec in Codec::ALL {
        for len in [0, 1, 100, 70_000, 3_000_000] {
            let input = sample(len);
            let compressed = compress(codec, &input).expect("compresses");
            assert!(decompress(codec, &compressed, len).expect("decompresses") == input, "{codec:?} {len}");
        }
    }
}

#[test]
fn names_and_numbers_agree() {
    for codec in Codec::ALL {
        assert_eq!(Codec::from_id(codec.id()), Some(codec));
        assert_eq!(Codec::from_name(codec.name()), Some(codec));
    }
    assert_eq!(Codec::from_id(5), None);
}

#[test]
fn truncated_data_is_never_taken_for_whole() {
    let input = sample(200_000);
    let frames = [
        (Codec::Gzip, compress(Codec::Gzip, &input).expect("compresses")),
        (Codec::Lz4, compress(Codec::Lz4, &input).expect("compresses")),
        (Codec::Zstd, compress(Codec::Zstd, &input).expect("compresses")),
        (Codec::Snappy, compress(Codec::Snappy, &input).expect("compresses")),
        (Codec::Snappy, xerial(&[&input[..100_000], &input[100_000..]])),
    ];
    for (codec, whole) in frames {
        assert!(decompress(codec, &whole, 1 << 20).expect("whole") == input);
        for cut in [1, 2, 4, 8, 100, whole.len() / 2, whole.len() - 3] {
            let result = decompress(codec, &whole[..whole.len() - cut], 1 << 20);
            assert!(result.is_err(), "{codec:?} cut by {cut}");
        }
    }
}

#[test]
fn a_frame_cut_between_two_blocks_is_damaged() {
    let whole = compress(Codec::Lz4, &sample(65_536 * 2)).expect("compresses");
    // Leaves out the end mark alone.
    assert!(matches!(decompress(Codec::Lz4, &whole[..whole.len() - 4], 1 << 20), Err(CodecError::Damaged { .. })));
}

#[test]
fn the_bound_holds_for_bombs() {
    let zeros = vec![0; 10_000_000];
    for codec in Codec::ALL {
        let bomb = compress(codec, &zeros).expect("compresses");
        assert!(matches!(decompress(codec, &bomb, 100_000), Err(CodecError::TooLarge { limit: 100_000 })), "{codec:?}");
        assert_eq!(decompress(codec, &bomb, zeros.len()).expect("exactly at the bound").len(), zeros.len());
    }
}

#[test]
fn claims_of_size_are_not_believed() {
    // 4 GiB claimed by a raw snappy block of a few bytes.
    assert!(matches!(
        decompress(Codec::Snappy, &[0xff, 0xff, 0xff, 0xff, 0x0f, 0x00, 0x41], usize::MAX),
        Err(CodecError::Damaged { .. })
    ));
    // 2 GiB claimed by the framing.
    let mut framed = xerial(&[]);
    framed.extend_from_slice(&[0x7f, 0xff, 0xff, 0xff, 1, 2, 3]);
    assert!(decompress(Codec::Snappy, &framed, usize::MAX).is_err());
    // A zstd frame with a window of 128 MiB, and one of a single segment that claims 2^60 bytes.
    assert!(decompress(Codec::Zstd, &[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x88, 0x01, 0x00, 0x00], 1 << 20).is_ok());
    let mut single = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0];
    single.extend_from_slice(&(1_u64 << 60).to_le_bytes());
    single.extend_from_slice(&[0x01, 0x00, 0x00]);
    assert!(decompress(Codec::Zstd, &single, 1 << 20).is_err());
}

#[test]
fn zstd_at_the_highest_level_is_read() {
    let input = sample(300_000);
    let mut encoder = ::zstd::stream::write::Encoder::new(Vec::new(), 22).expect("encoder");
    encoder.write_all(&input).expect("in memory");
    let compressed = encoder.finish().expect("in memory");
    assert!(decompress(Codec::Zstd, &compressed, input.len()).expect("decompresses") == input);
    assert!(matches!(decompress(Codec::Zstd, &compressed, input.len() - 1), Err(CodecError::TooLarge { .. })));
}

#[test]
fn lz4_checksums_are_checked() {
    let info = lz4_flex::frame::FrameInfo::new()
        .block_mode(lz4_flex::frame::BlockMode::Independent)
        .block_checksums(true)
        .content_checksum(true)
        .content_size(Some(5000));
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(&sample(5000)).expect("in memory");
    let whole = encoder.finish().expect("in memory");
    assert_eq!(decompress(Codec::Lz4, &whole, 5000).expect("whole"), sample(5000));
    for at in [4, 5, 10, 14, 40, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        assert!(decompress(Codec::Lz4, &damaged, 1 << 20).is_err(), "bit flipped in byte {at}");
    }
}

#[test]
fn zstd_wants_a_whole_frame_and_forgets_what_failed() {
    let frame = compress(Codec::Zstd, b"hello hello hello hello").unwrap();
    for _ in 0..2 {
        assert!(decompress(Codec::Zstd, b"", 100).is_err());
        for cut in 1..frame.len() {
            assert!(decompress(Codec::Zstd, &frame[..cut], 100).is_err(), "{cut}");
        }
        assert_eq!(decompress(Codec::Zstd, &frame, 100).unwrap(), b"hello hello hello hello");
    }
}
