//! Writes pictures to files.

use std::fs;
use std::path::Path;

use crate::output::CommandError;

/// Writes a picture.
pub(super) fn save(path: &Path, picture: &str) -> Result<(), CommandError> {
    fs::write(path, picture)
        .map_err(|error| CommandError::Failed(format!("cannot write {}: {error}", path.display())))
}
