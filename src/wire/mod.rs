//! The Kafka protocol on the wire: frames, API table, record batch view, codecs, CRC.
