//! The names of slot files.

use std::path::{Path, PathBuf};

use super::slots::SlotNumber;

const PREFIX: &str = "wal-";
const SUFFIX: &str = ".slot";

/// The path of a slot file.
pub(super) fn slot_path(dir: &Path, slot: SlotNumber) -> PathBuf {
    dir.join(format!("{PREFIX}{slot:06}{SUFFIX}"))
}

/// The number in a slot file's name; `None` for any other name.
pub(super) fn slot_number(path: &Path) -> Option<SlotNumber> {
    let digits = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let number = digits.parse().ok()?;
    (format!("{number:06}") == digits).then_some(number)
}
