//! Cleans up after clients that are gone, and after names that are no longer used.

use leasehold_core::{Fence, Outcome, Step};

use super::Db;
#[cfg(feature = "entries")]
use crate::store::local::cache;
use crate::store::local::fault::Fault;
use crate::store::local::process;
use crate::store::local::rows::signed;

/// How many steps pass between two cleanups, and how many names one cleanup touches at most.
const TIDY_EVERY: u32 = 1024;
const TIDY_AT_MOST: usize = 256;
/// How many cache entries one cleanup deletes at most. There are more of them, and deleting is cheap.
#[cfg(feature = "entries")]
const ENTRIES_AT_MOST: u32 = 2048;

impl Db {
    /// Cleans up once in many steps.
    pub(super) fn tidy_if_due(&mut self) {
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(TIDY_EVERY) {
            // If this fails, the next cleanup will do the work.
            for (key, outcome) in self.tidy().unwrap_or_default() {
                self.tell(&key, &outcome);
            }
        }
    }

    /// Applies the passage of time to unused names, and forgets clients whose process is gone.
    pub(super) fn tidy(&self) -> Result<Vec<(String, Outcome)>, Fault> {
        #[cfg(feature = "entries")]
        cache::sweep(&self.conn, self.clock.store_now(), ENTRIES_AT_MOST)?;
        // Every step first applies the passage of time. This one does nothing else, since no grant has this fence.
        let advance = Step::Break {
            fence: Fence::new(0),
        };
        let gone = process::gone(&self.conn, &self.process)?;
        let mut keys = self.outdated()?;
        for client in &gone {
            let mut held = self
                .conn
                .prepare_cached("SELECT key FROM holders WHERE client = ?1")?;
            keys.extend(
                held.query_map([client], |row| row.get(0))?
                    .collect::<rusqlite::Result<Vec<String>>>()?,
            );
        }
        if keys.is_empty() && gone.is_empty() {
            return Ok(Vec::new());
        }
        let begun = self.begin()?;
        let mut outcomes = Vec::new();
        for key in keys.into_iter().take(TIDY_AT_MOST) {
            let outcome = self.transition(&key, &advance)?;
            outcomes.push((key, outcome));
        }
        for client in gone {
            process::unregister(&self.conn, client)?;
        }
        begun.commit()?;
        Ok(outcomes)
    }

    /// The names with an expired row.
    fn outdated(&self) -> rusqlite::Result<Vec<String>> {
        let now = signed(self.clock.store_now().millis());
        let sql = "SELECT key FROM holders WHERE expires_at_ms < ?1 UNION
            SELECT key FROM waiters WHERE seen_until_ms < ?1 AND key NOT IN (SELECT key FROM holders)";
        self.conn
            .prepare_cached(sql)?
            .query_map([now], |row| row.get(0))?
            .take(TIDY_AT_MOST)
            .collect()
    }
}
