//! Frames from peers that fragment, lie and stop.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use tokio::io::ReadBuf;

use super::*;

/// Gives out its bytes in runs of given lengths, then the end. Never waits, so that polling once is running to the end.
struct Runs {
    bytes: Bytes,
    lengths: Vec<usize>,
    /// The largest room that a single read offered.
    offered_max: usize,
}

impl AsyncRead for Runs {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.offered_max = self.offered_max.max(buf.remaining());
        let wanted = self.lengths.pop().unwrap_or(usize::MAX).max(1);
        let len = wanted.min(self.bytes.len()).min(buf.remaining());
        buf.put_slice(&self.bytes.split_to(len));
        Poll::Ready(Ok(()))
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the source never waits"),
    }
}

fn reader(bytes: &[u8], lengths: &[usize], limits: FrameLimits) -> FrameReader<Runs> {
    let bytes = Bytes::copy_from_slice(bytes);
    FrameReader::new(Runs { bytes, lengths: lengths.to_vec(), offered_max: 0 }, limits)
}

const ANSWERS: FrameLimits = FrameLimits::Answers { bytes_max: 100 << 20 };

fn first_error(bytes: &[u8]) -> String {
    run(reader(bytes, &[], FrameLimits::REQUESTS).next()).expect_err("no frame").to_string()
}

#[test]
fn hostile_beginnings_are_refused_at_once() {
    let listed: Vec<_> = [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\n",
        &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01],
        b"SSH-2.0-OpenSSH_9.9\r\n",
        &[0x7f, 0xff, 0xff, 0xff, 0, 0],
        &[0xff, 0xff, 0xff, 0xff],
        &[0x80, 0, 0, 0],
        &[0x06, 0x40, 0x00, 0x01, 0, 0],
        &[0x00, 0x40, 0x00, 0x01, 0, 3],
        &[0x00, 0x40, 0x00, 0x01, 0, 0],
        &[0x00],
    ]
    .iter()
    .map(|bytes| first_error(bytes))
    .collect();
    insta::assert_snapshot!(listed.join("\n"));
}

#[test]
fn the_end_between_frames_is_no_error() {
    let mut frames = reader(&[0, 0, 0, 2, 7, 8, 0, 0, 0, 0], &[], ANSWERS);
    assert_eq!(run(frames.next()).expect("whole").as_deref(), Some(&[7, 8][..]));
    assert_eq!(frames.take().expect("whole").as_deref(), Some(&[][..]));
    assert_eq!((frames.take().expect("nothing wrong"), frames.frame_bytes().expect("nothing wrong")), (None, None));
    assert!(run(frames.next()).expect("the end").is_none());
}

#[test]
fn a_claimed_length_allocates_nothing() {
    let mut bytes = vec![0x05, 0x00, 0x00, 0x00, 0, 0];
    bytes.extend([0; 1000]);
    let mut frames = reader(&bytes, &[], FrameLimits::REQUESTS);
    assert!(matches!(run(frames.next()), Err(FrameError::Cut { received: 1006, expected: 83_886_084 })));
    assert!(frames.source.offered_max <= READ_BYTES_MAX, "{} offered", frames.source.offered_max);
    assert!(frames.buffer.capacity() <= 2 * READ_BYTES_MAX);
}

#[test]
fn large_frames_come_through_whole() {
    let mut bytes = 3_000_000_u32.to_be_bytes().to_vec();
    bytes.extend((0..3_000_000_u32).map(|i| (i * 7) as u8));
    for run_length in [1_000, 100_000, usize::MAX] {
        let mut frames = reader(&bytes, &vec![run_length; 4000], ANSWERS);
        assert!(run(frames.next()).expect("whole").expect("one").as_ref() == &bytes[4..]);
    }
}

#[test]
fn no_more_is_read_than_there_is_room_for_and_nothing_behind_a_large_frame() {
    let mut bytes = 300_000_u32.to_be_bytes().to_vec();
    bytes.extend(vec![1; 600_000]);
    let mut frames = reader(&bytes, &[], ANSWERS);
    while frames.buffered() < 100_000 {
        assert!(run(frames.fill(100_000)).expect("more"));
    }
    assert_eq!((frames.buffered(), frames.frame_bytes().expect("fine")), (100_000, Some(300_004)));
    while frames.take().expect("fine").is_none() {
        assert!(run(frames.fill(usize::MAX)).expect("more"));
    }
    assert_eq!(frames.buffered(), 0);
}

#[test]
fn pieces_are_written_in_order() {
    let mut pieces = Pieces::from(Bytes::from_static(b"ab"));
    pieces.push(Bytes::new());
    pieces.push(Bytes::from_static(b"cde"));
    pieces.append(Pieces::from(Bytes::from_static(b"f")));
    assert_eq!(pieces.len(), 6);
    let mut slices = [IoSlice::new(&[]); 8];
    assert_eq!(pieces.chunks_vectored(&mut slices), 3);
    let mut out = Vec::new();
    run(pieces.write_to(&mut out)).expect("memory");
    assert_eq!(out, b"abcdef");
    assert!(pieces.is_empty());
}

proptest! {
    #[test]
    fn any_fragmentation_gives_the_same_frames(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9000), 0..20),
        lengths in prop::collection::vec(1..5000_usize, 0..200),
    ) {
        let mut bytes = Vec::new();
        for frame in &frames {
            bytes.extend((frame.len() as u32).to_be_bytes());
            bytes.extend(frame);
        }
        let mut reader = reader(&bytes, &lengths, ANSWERS);
        // A first length may look like another protocol; these are too short for that.
        for frame in &frames {
            let read = run(reader.next()).expect("whole").expect("as many as were written");
            prop_assert_eq!(&read[..], &frame[..]);
        }
        prop_assert!(run(reader.next()).expect("the end").is_none());
    }
}
