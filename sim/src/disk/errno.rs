//! Error numbers as Linux has them, so that callers see the same `io::Error` as in the real world.
#![allow(missing_docs)]

use std::io;

macro_rules! numbers {
    ($($name:ident = $number:literal)*) => {
        $(pub const $name: i32 = $number;)*

        /// The name of a number, as people know it.
        pub fn name(number: i32) -> &'static str {
            match number {
                $($number => stringify!($name),)*
                _ => "EUNKNOWN",
            }
        }
    };
}

numbers! {
    ENOENT = 2
    EIO = 5
    EBADF = 9
    EEXIST = 17
    ENOTDIR = 20
    EISDIR = 21
    EMFILE = 24
    ENOSPC = 28
    ENOTEMPTY = 39
}

pub(crate) fn os_error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}
