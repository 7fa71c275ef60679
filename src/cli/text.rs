//! Text on the command line of the clients: escapes, and the format of records.

use crate::wire::batch::Record;

/// Replaces `\n`, `\t`, `\r`, `\0` and `\\`.
pub(super) fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            out.push(char);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('0') => out.push('\0'),
            Some('\\') => out.push('\\'),
            Some(other) => return Err(format!("unknown escape \\{other}; known are \\n \\t \\r \\0 \\\\")),
            None => return Err("a \\ at the end escapes nothing; write \\\\ for one".to_owned()),
        }
    }
    Ok(out)
}

/// How a record is printed: text with `%`-fields, as with kcat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFormat(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Topic,
    Partition,
    Offset,
    Key,
    Value,
    Timestamp,
    Headers,
}

impl RecordFormat {
    /// Reads a format. The error tells which fields there are.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = unescape(text)?;
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut chars = text.chars();
        while let Some(char) = chars.next() {
            if char != '%' {
                plain.push(char);
                continue;
            }
            let part = match chars.next() {
                Some('%') => {
                    plain.push('%');
                    continue;
                }
                Some('t') => Part::Topic,
                Some('p') => Part::Partition,
                Some('o') => Part::Offset,
                Some('k') => Part::Key,
                Some('s') => Part::Value,
                Some('T') => Part::Timestamp,
                Some('h') => Part::Headers,
                _ => {
                    return Err("fields are %t topic, %p partition, %o offset, %k key, %s value, %T timestamp in ms, \
                         %h headers, %% for %"
                        .to_owned());
                }
            };
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            parts.push(part);
        }
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Self(parts))
    }

    /// Appends a record. Null keys and values are empty.
    pub(super) fn print(&self, out: &mut Vec<u8>, topic: &str, partition: i32, record: &Record) {
        for part in &self.0 {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Topic => out.extend_from_slice(topic.as_bytes()),
                Part::Partition => out.extend_from_slice(partition.to_string().as_bytes()),
                Part::Offset => out.extend_from_slice(record.offset.to_string().as_bytes()),
                Part::Timestamp => out.extend_from_slice(record.timestamp.to_string().as_bytes()),
                Part::Key => out.extend_from_slice(record.key.as_deref().unwrap_or_default()),
                Part::Value => out.extend_from_slice(record.value.as_deref().unwrap_or_default()),
                Part::Headers => {
                    for (number, header) in record.headers.iter().enumerate() {
                        if number > 0 {
                            out.push(b',');
                        }
                        out.extend_from_slice(&header.key);
                        out.push(b'=');
                        out.extend_from_slice(header.value.as_deref().unwrap_or_default());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::wire::batch::Header;

    fn printed(format: &str) -> String {
        let header = |key: &'static str, value| Header { key: Bytes::from_static(key.as_bytes()), value };
        let record = Record {
            offset: 42,
            timestamp: 1000,
            key: None,
            value: Some(Bytes::from_static(b"v")),
            headers: vec![header("a", Some(Bytes::from_static(b"1"))), header("a", None)],
        };
        let mut out = Vec::new();
        match RecordFormat::parse(format) {
            Ok(format) => format.print(&mut out, "orders", 3, &record),
            Err(error) => return error,
        }
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn records_are_printed_as_asked() {
        assert_eq!(printed("%s\\n"), "v\n");
        assert_eq!(printed("%t[%p]@%o %T '%k'=%s %h 100%%"), "orders[3]@42 1000 ''=v a=1,a= 100%");
        assert!(printed("%x").starts_with("fields are"));
        assert!(printed("%").starts_with("fields are"));
        assert!(printed("\\q").starts_with("unknown escape"));
    }

    #[test]
    fn escapes_are_replaced() {
        assert_eq!(unescape("a\\tb\\\\n").as_deref(), Ok("a\tb\\n"));
        assert!(unescape("\\").is_err());
    }
}
