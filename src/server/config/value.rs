//! The types of configuration values and their written forms.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use crate::metadata::config_def::{ValueError, split_list};

/// A type that a key's value is parsed into. The table's kind has accepted the text before.
pub trait Value: Sized {
    /// Parses the text.
    fn parse(name: &str, text: &str) -> Result<Self, ValueError>;
    /// The text that parses to this value.
    fn show(&self) -> String;
}

fn refuse(name: &str, text: &str, why: &str) -> ValueError {
    ValueError { name: name.to_owned(), value: text.to_owned(), why: why.to_owned() }
}

impl Value for bool {
    fn parse(name: &str, text: &str) -> Result<Self, ValueError> {
        text.to_ascii_lowercase().parse().map_err(|_| refuse(name, text, "Expected value to be either true or false"))
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for i32 {
    fn parse(name: &str, text: &str) -> Result<Self, ValueError> {
        text.parse().map_err(|_| refuse(name, text, "Not a number of type INT"))
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for i64 {
    fn parse(name: &str, text: &str) -> Result<Self, ValueError> {
        text.parse().map_err(|_| refuse(name, text, "Not a number of type LONG"))
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for String {
    fn parse(_: &str, text: &str) -> Result<Self, ValueError> {
        Ok(text.to_owned())
    }
    fn show(&self) -> String {
        self.clone()
    }
}

/// `wal.sync`: when the write-ahead log is flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// Before every acknowledgement.
    Always,
    /// Every `wal.sync.interval.ms`.
    Interval,
    /// When the system likes.
    Os,
}

impl SyncMode {
    /// The words that the key takes.
    pub const WORDS: &'static [&'static str] = &["always", "interval", "os"];
}

impl Value for SyncMode {
    fn parse(name: &str, text: &str) -> Result<Self, ValueError> {
        match text {
            "always" => Ok(Self::Always),
            "interval" => Ok(Self::Interval),
            "os" => Ok(Self::Os),
            _ => Err(refuse(name, text, "String must be one of: always, interval, os")),
        }
    }
    fn show(&self) -> String {
        Self::WORDS[*self as usize].to_owned()
    }
}

/// `produce.validation`: how far a produced batch is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProduceValidation {
    /// Compressed batches are decompressed and walked, so nothing is stored that a consumer could not read.
    Strict,
    /// Compressed batches are checked by checksum and header alone.
    Relaxed,
}

impl ProduceValidation {
    /// The words that the key takes.
    pub const WORDS: &'static [&'static str] = &["strict", "relaxed"];
}

impl Value for ProduceValidation {
    fn parse(name: &str, text: &str) -> Result<Self, ValueError> {
        match text {
            "strict" => Ok(Self::Strict),
            "relaxed" => Ok(Self::Relaxed),
            _ => Err(refuse(name, text, "String must be one of: strict, relaxed")),
        }
    }
    fn show(&self) -> String {
        Self::WORDS[*self as usize].to_owned()
    }
}

/// `listeners`, `advertised.listeners`: a host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A name or an address; empty for all addresses.
    pub host: String,
    /// The port; 0 lets the system choose.
    pub port: u16,
}

impl Endpoint {
    /// Whether the host stands for every address of the machine.
    pub fn is_wildcard(&self) -> bool {
        self.host.is_empty() || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified())
    }

    /// Whether the host is this machine as it calls itself.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// `host:port` as the resolver takes it.
    pub fn to_resolve(&self) -> String {
        let host = if self.host.is_empty() { Ipv4Addr::UNSPECIFIED.to_string() } else { self.host.clone() };
        Self { host, port: self.port }.to_string()
    }

    fn parse_one(text: &str) -> Result<Self, &'static str> {
        let rest = match text.split_once("://") {
            None => text,
            Some((protocol, rest)) if protocol.eq_ignore_ascii_case("plaintext") => rest,
            Some(_) => return Err("only PLAINTEXT listeners are supported so far"),
        };
        let (host, port) = rest.rsplit_once(':').ok_or("Expected host:port or PLAINTEXT://host:port")?;
        let port = port.parse().map_err(|_| "The port must be a number from 0 to 65535")?;
        let host = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host);
        if host.chars().any(|character| character.is_whitespace() || matches!(character, '/' | '[' | ']')) {
            return Err("Expected host:port or PLAINTEXT://host:port");
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl Value for Endpoint {
    fn parse(name: &str, text: &str) -> Result<Self, ValueError> {
        if split_list(text).count() > 1 {
            return Err(refuse(name, text, "only one listener is supported so far"));
        }
        Self::parse_one(text).map_err(|why| refuse(name, text, why))
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for Option<Endpoint> {
    fn parse(name: &str, text: &str) -> Result<Self, ValueError> {
        if text.is_empty() { Ok(None) } else { Endpoint::parse(name, text).map(Some) }
    }
    fn show(&self) -> String {
        self.as_ref().map_or_else(String::new, Endpoint::show)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_in_their_forms() {
        for (text, host, port) in [
            ("127.0.0.1:9092", "127.0.0.1", 9092),
            ("PLAINTEXT://kilo.example:1", "kilo.example", 1),
            ("plaintext://:9092", "", 9092),
            ("[::1]:9092", "::1", 9092),
            ("localhost:0", "localhost", 0),
        ] {
            let endpoint = Endpoint::parse("listeners", text).expect(text);
            assert_eq!((endpoint.host.as_str(), endpoint.port), (host, port), "{text}");
            assert_eq!(Endpoint::parse("listeners", &endpoint.show()), Ok(endpoint));
        }
        for text in ["", "9092", "host", "host:", "host:99999", "SSL://h:1", "a:1,b:2", "h/x:1", "http://h:1"] {
            assert!(Endpoint::parse("listeners", text).is_err(), "{text}");
        }
    }

    #[test]
    fn wildcards_are_known() {
        for (text, wild) in
            [(":1", true), ("0.0.0.0:1", true), ("[::]:1", true), ("127.0.0.1:1", false), ("h:1", false)]
        {
            assert_eq!(Endpoint::parse("listeners", text).expect(text).is_wildcard(), wild, "{text}");
        }
    }
}
