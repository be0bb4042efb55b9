//! Rules that are broken on purpose, to test the tests. They exist only with `--cfg leasehold_mutations`, which this
//! repository's `.cargo/config.toml` sets, and never in a release build.
//!
//! This is the only place of the crate that reads the environment. A process has at most one active mutation, named by the
//! variable `LEASEHOLD_MUTATION` as `core/NAME`. A value `lua/NAME` breaks a script of Redis instead and leaves these rules
//! sound. `docs/how-we-know/mutations.md` lists which test catches which mutation.

mod after;
mod broken;
mod queries;

use std::sync::OnceLock;

/// The environment variable that names the active mutation.
const VARIABLE: &str = "LEASEHOLD_MUTATION";

macro_rules! mutations {
    ($($variant:ident $name:literal: $what:literal;)*) => {
        /// A rule that is broken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutation {
            $(#[doc = $what] $variant,)*
        }

        impl Mutation {
            /// All mutations.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name, as in the environment variable.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The broken rule, in a sentence.
            pub const fn what(self) -> &'static str {
                match self {
                    $(Self::$variant => $what,)*
                }
            }
        }
    };
}

mutations! {
    ReleaseWithoutOwnerCheck "core/release-without-owner-check":
        "A release frees the lock for any owner.";
    WaiterReleaseFreesHolder "core/waiter-release-frees-holder":
        "A waiter that leaves the queue frees the lock as well.";
    ReleaseAlwaysSucceeds "core/release-always-succeeds":
        "A release answers *released* even if the lease was lost.";
    KeepIgnored "core/keep-ignored":
        "A release that should keep the lock for a time frees it at once.";
    ExtendWithoutOwnerCheck "core/extend-without-owner-check":
        "An extension by any owner moves the deadline of the holder.";
    ExtendRetakes "core/extend-retakes":
        "An extension takes an expired lock again.";
    ExtendAlwaysSucceeds "core/extend-always-succeeds":
        "An extension answers *held* even if the lease was lost.";
    ExtendIgnoresFence "core/extend-ignores-fence":
        "An extension is carried out for a holder of another grant.";
    ReleaseIgnoresFence "core/release-ignores-fence":
        "A release answers *released* to an owner that holds by another grant, or only waits.";
    BreakIgnoresFence "core/break-ignores-fence":
        "A break frees the lock of any holder, whichever fence it names.";
    InspectGrants "core/inspect-grants":
        "A look drops an expired hold and hands the lock over.";
    NoExclusion "core/no-exclusion":
        "An acquire is granted while another owner holds, if the queue is empty.";
    LeaseEndsEarly "core/lease-ends-early":
        "A lease no longer counts at its last millisecond.";
    LeaseEndsLate "core/lease-ends-late":
        "A lease counts for one millisecond too many.";
    QueueSkipped "core/queue-skipped":
        "A client that finds the lock expired takes it, even if others wait.";
    LastComeFirstServed "core/last-come-first-served":
        "The lock goes to the last waiter.";
    BusyNotQueued "core/busy-not-queued":
        "A client that should wait is refused and not queued.";
    RefreshMovesToTheEnd "core/refresh-moves-to-the-end":
        "A waiter that asks again goes to the end of the queue.";
    GrantedStaysQueued "core/granted-stays-queued":
        "A waiter that is granted the lock keeps its place in the queue.";
    GrantForFullTtl "core/grant-for-full-ttl":
        "A waiter is granted its whole TTL, not the claim window.";
    SilentWaiterGranted "core/silent-waiter-granted":
        "A waiter counts as alive however long ago it last asked.";
    DeafWaiterGranted "core/deaf-waiter-granted":
        "A waiter that cannot be told is granted the lock.";
    PlaceLostWhenNotTold "core/place-lost-when-not-told":
        "A waiter that cannot be told loses its place.";
    PassedOverBlocks "core/passed-over-blocks":
        "A waiter that cannot be told keeps those behind it from the lock.";
    PassedOverStays "core/passed-over-stays":
        "A waiter that cannot be told keeps its place for as long as any other.";
    FirstNotTold "core/first-not-told":
        "A waiter that becomes the first behind a foreign holder is not told.";
    GraceForgotten "core/grace-forgotten":
        "A waiter counts as dead the moment its next poll is due.";
    PollAtOnce "core/poll-at-once":
        "A waiter is told to ask again at once.";
    WakeForgotten "core/wake-forgotten":
        "No waiter is told that it was granted the lock.";
    WakeToAnother "core/wake-to-another":
        "Not the waiter that was granted the lock is told, but the next one.";
    WantedForgotten "core/wanted-forgotten":
        "The holder is not told that others wait.";
    GrantWithoutFence "core/grant-without-fence":
        "A grant has the fence of the one before.";
    BlockNotCounted "core/block-not-counted":
        "The counter goes on by one, however many fences a grant draws.";
    FenceWithoutClock "core/fence-without-clock":
        "Fences are counted and begin anew when the counter is lost.";
    FenceResetOnRelease "core/fence-reset-on-release":
        "A release forgets the counter.";
    RepeatDrawsFence "core/repeat-draws-fence":
        "A repeated acquire draws a new fence.";
}

impl Mutation {
    /// The mutation with which this process was started.
    ///
    /// # Panics
    /// If the variable names no mutation; the message lists all.
    pub fn active() -> Option<Self> {
        static ACTIVE: OnceLock<Option<Mutation>> = OnceLock::new();
        *ACTIVE.get_or_init(|| {
            let asked = std::env::var(VARIABLE).unwrap_or_default();
            if asked.is_empty() || asked.starts_with("lua/") {
                return None;
            }
            let found = Self::ALL.iter().find(|known| known.name() == asked);
            let known = |known: &Self| format!("\n{}: {}", known.name(), known.what());
            let all: String = Self::ALL.iter().map(known).collect();
            assert!(found.is_some(), "{VARIABLE}={asked} is none of these:{all}");
            found.copied()
        })
    }
}
