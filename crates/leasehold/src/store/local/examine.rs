//! Gathers the facts about a file of locks. It takes no lock: that would leave a fence behind.

use std::path::Path;

use leasehold_core::ClientId;
use nix::unistd::{AccessFlags, access};

use super::file::{BUSY_LIMIT, file_system};
use super::path;
use super::store::LocalStore;
use crate::clock::Clock;
use crate::doctor::{Examined, Facts, FileFacts};
use crate::error::{Error, StoreError};
use crate::runtime::Tasks;
use crate::store::contract::{Attach, Store};

/// Opens the file as a client would, and looks at where it is.
///
/// # Errors
/// The file cannot be opened or read.
pub(crate) async fn examine(given: &str, clock: &Clock) -> Result<Examined, Error> {
    let attach = Attach {
        client: ClientId::new(0),
        listener: std::sync::Arc::new(|_| {}),
        clock: clock.clone(),
        tasks: Tasks::here().ok_or_else(StoreError::closed)?,
        limit: BUSY_LIMIT,
    };
    let store = LocalStore::open(given, attach)?;
    let names = store.index(None).await?;
    let path = path::locate(given)?.path;
    let mut facts = FileFacts::new(&path, rusqlite::version());
    facts.locks = names.len();
    facts.refusal = store.refusal().await?;
    facts.is_writable = facts.refusal.is_none() && may_write(&path);
    facts.file_system = file_system(&path).map(|(name, _)| name.to_owned());
    Ok(Examined::new(path::label(&path), Facts::File(facts)))
}

/// SQLite keeps files beside the file, in the same directory.
fn may_write(path: &Path) -> bool {
    let write = AccessFlags::W_OK;
    access(path, write).is_ok()
        && path
            .parent()
            .is_none_or(|folder| access(folder, write).is_ok())
}
