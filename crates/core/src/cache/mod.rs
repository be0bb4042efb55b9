//! What a guarded cache entry is, and who may load it. Must never read a clock, nor look into a value.
//!
//! An entry is a value that is *fresh* until its soft expiry and *stale* until the store drops it, and beside it a
//! [`Control`]: who loads it now, what was invalidated when, and how long to leave a failing source alone. One function,
//! [`EntryState::apply`], decides; the embedded stores keep its state, the scripts under `lua/cache` do the same in Redis and
//! are compared with it, and the lab's model explores it.
//!
//! # Invariants
//!
//! - **K1** While the lease of a loader has not ended, no other is told to load, unless the entry was invalidated since.
//! - **K2** The numbers that one entry gives out, to loads and to invalidations, strictly rise: a later load has a higher
//!   version. They also do when the store forgets the last one, as long as the wall clock has passed it.
//! - **K3** A value is stored as fresh only if its load was granted after the last invalidation. What the store has forgotten
//!   counts as invalidated: a load that the control has no memory of, since it is newer than the load or gone, fills as stale.
//!   A load whose number is above all that the control gave out is dropped: the control was lost, and the clock was set back.
//! - **K4** The version of what is stored only rises: a late load never replaces the value of a later one. It is kept if
//!   there is none, whether or not its lease has ended: a loader that is slower than its lease still fills the cache.
//! - **K5** Who is told to wait is told to ask again when the load ends, by its value, its failure or an invalidation; and at
//!   the end of the lease, if nothing is heard, by itself.
//! - **K6** Every step may be repeated: the answer to a load, a renewal or a commit is the same again.
//! - **K7** Everything kept has an end in time.
//! - **K8** What is not an entry is never overwritten or deleted.

mod early;
mod entry;
mod state;
mod step;
mod version;
mod world;

pub use entry::{Body, Format, HEADER_BYTES, Header, Standing, Value};
pub use state::{BackOff, Control, EntryState, Loader, MEMORY, POLL, POLL_UNSUBSCRIBED};
pub use step::{Begin, Commit, CommitOutcome, Outcome, Reply, Step, Token};
pub use version::Version;
pub use world::CacheWorld;
