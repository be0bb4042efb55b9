//! Where pictures go. Must never say that one is there which could not be written.

use std::fs;
use std::path::Path;

use crate::said::Refused;

/// Writes a picture.
pub(super) fn save(path: &Path, picture: &str) -> Result<(), Refused> {
    fs::write(path, picture)
        .map_err(|error| Refused::Failed(format!("cannot write {}: {error}", path.display())))
}
