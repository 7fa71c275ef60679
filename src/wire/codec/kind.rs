//! Which codecs there are, and how they fail.

/// How the records of a batch are compressed: the low three bits of its attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Codec {
    /// Not compressed.
    #[default]
    None = 0,
    /// gzip.
    Gzip = 1,
    /// snappy, raw or in the Java (xerial) framing.
    Snappy = 2,
    /// LZ4 frames of independent blocks.
    Lz4 = 3,
    /// zstd.
    Zstd = 4,
}

impl Codec {
    /// All codecs, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The codec of a number in batch attributes.
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.get(usize::from(id)).copied()
    }

    /// The number in batch attributes.
    pub fn id(self) -> u8 {
        self as u8
    }

    /// The name in configuration (`compression.type`).
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The codec of a name in configuration.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.name() == name)
    }
}

/// Why bytes could not be compressed or decompressed.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The data does not follow its format.
    #[error("{codec} data is damaged: {reason}", codec = .codec.name())]
    Damaged {
        /// The codec.
        codec: Codec,
        /// What is wrong.
        reason: String,
    },
    /// More comes out than is allowed.
    #[error("more than {limit} bytes come out of the decompression")]
    TooLarge {
        /// The bound, in bytes.
        limit: usize,
    },
}

impl CodecError {
    pub(super) fn damaged(codec: Codec, reason: impl ToString) -> Self {
        Self::Damaged { codec, reason: reason.to_string() }
    }
}
