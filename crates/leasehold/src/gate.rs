//! The resource's side of fencing.
//!
//! A lock service cannot stop a holder that was paused past its deadline and has not noticed. The resource can: each access sends the
//! fence, and the resource refuses a fence lower than the highest one it has seen. **Check each access, the first read too.** A resource
//! that checks only writes still loses updates: after the next holder has read and before it writes, the old fence is still the highest
//! one *written*, so the write of the paused holder passes.
//!
//! [`Gate`] is that check inside one process. In SQL the check is one statement at the first access, in the same transaction as the
//! work. No row means that the fence is stale:
//!
//! ```sql
//! UPDATE account SET fence = :fence WHERE id = :id AND fence <= :fence RETURNING balance;
//! ```
//!
//! A fence fits a `BIGINT`: `i64::from(fence)` goes into any SQL library, and `Fence::try_from(number)` reads it back. With the
//! feature `rusqlite`, [`Fence`] itself is a parameter and a column there.
//!
//! ```
//! use leasehold::Fence;
//! use rusqlite::{Connection, OptionalExtension, params};
//!
//! /// The balance; `None` if a later holder was here before.
//! fn read(accounts: &Connection, id: i64, fence: Fence) -> rusqlite::Result<Option<i64>> {
//!     let sql = "UPDATE account SET fence = ?2 WHERE id = ?1 AND fence <= ?2 RETURNING balance";
//!     accounts.query_row(sql, params![id, i64::from(fence)], |row| row.get(0)).optional()
//! }
//! # let accounts = Connection::open_in_memory()?;
//! # accounts.execute_batch("CREATE TABLE account (id, balance, fence); INSERT INTO account VALUES (1, 100, 41)")?;
//! assert_eq!(read(&accounts, 1, Fence::new(42))?, Some(100));
//! assert_eq!(read(&accounts, 1, Fence::new(41))?, None);
//! # Ok::<(), rusqlite::Error>(())
//! ```
//!
//! In Redis it is [`ADMIT_SCRIPT`].

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::Fence;

/// A Lua script that admits a fence at a key: `KEYS[1]` keeps the highest fence seen, `ARGV[1]` is the fence; answers 1 or 0.
pub const ADMIT_SCRIPT: &str = include_str!("../lua/gate/admit.lua");

/// Remembers the highest fence seen and refuses lower ones.
///
/// ```
/// use leasehold::{Fence, Gate};
///
/// let gate = Gate::new();
/// gate.admit(Fence::new(41))?;                          // the first holder reads
/// gate.admit(Fence::new(42))?;                          // the next one reads: the first is shut out from here on
/// assert!(gate.admit(Fence::new(41)).is_err());         // its late write is refused
/// # Ok::<(), leasehold::StaleFence>(())
/// ```
#[derive(Debug, Default)]
pub struct Gate {
    highest: AtomicU64,
}

/// A fence that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "fence {fence} is stale: {highest} was seen before; the lease behind it is over, do not retry"
)]
#[non_exhaustive]
pub struct StaleFence {
    /// The refused fence.
    pub fence: Fence,
    /// The highest one seen.
    pub highest: Fence,
}

impl Gate {
    /// A gate that has seen no fence. After a restart, use [`Gate::starting_at`] with the fence stored beside the data.
    pub const fn new() -> Self {
        Self {
            highest: AtomicU64::new(0),
        }
    }

    /// A gate that has seen `fence`.
    ///
    /// ```
    /// use leasehold::{Fence, Gate};
    ///
    /// let stored = Fence::new(41);                         // read beside the data
    /// let gate = Gate::starting_at(stored);
    /// assert!(gate.admit(Fence::new(40)).is_err());
    /// ```
    pub const fn starting_at(fence: Fence) -> Self {
        Self {
            highest: AtomicU64::new(fence.get()),
        }
    }

    /// Admits an access, a read or a write. From then on the gate refuses all lower fences.
    ///
    /// # Errors
    /// [`StaleFence`] when a higher fence was admitted before.
    pub fn admit(&self, fence: Fence) -> Result<(), StaleFence> {
        let highest = Fence::new(self.highest.fetch_max(fence.get(), Ordering::SeqCst));
        if fence < highest {
            Err(StaleFence { fence, highest })
        } else {
            Ok(())
        }
    }

    /// The highest fence seen. Store it beside the data.
    pub fn highest(&self) -> Fence {
        Fence::new(self.highest.load(Ordering::SeqCst))
    }
}
