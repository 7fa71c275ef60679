//! The Kafka protocol on the wire: frames, API table, record batch view, codecs, CRC.
//!
//! Nothing here knows of sockets, files or topics: bytes in, values out, and back. Whatever a peer sends ends in a value
//! or an error, never in a panic or an allocation by a claimed length.

pub mod api;
pub mod batch;
pub mod codec;
pub mod error_code;
pub mod frame;
pub mod header;
pub mod messages;
mod types;
mod varint;

pub use api::{APIS, Api, ApiKey};
pub use error_code::ErrorCode;
