//! The lock that protects a command: a mutex lease, several of them (`--also`), a reader's (`--shared`), a slot (`--slots`), or a lock of the timestamp protocol (`--protocol timestamp`). That one
//! is shared with clients that store a deadline in the key, and is weaker than a mutex.

use std::env;
use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};
use humantime::format_rfc3339_millis;
use leasehold::kind::AnyKind;
use leasehold::timestamp::Unit;
use leasehold::{
    Client, Clock, Error, Fence, Lease, Leases, Lost, Mode, Moment, Owner, Permit, ReadLease,
    Slots, TimestampHold, TimestampLock,
};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

use crate::acquire_ui::{CHAIN, WaitArgs, interrupted, is_in_chain};
use crate::exit::{BUSY, Exit, TIMEOUT, USAGE, exit};
use crate::inherited_store::Variables;
use crate::messages::{quoted, say, span};
use crate::session::Released;
use crate::terminal::{Signals, Terminal};

/// The time limit after a lease was lost or could not be renewed. Most often the store does not answer then, and
/// a restart of the command should not wait for it.
pub(super) const RELEASE_LOST: Duration = Duration::from_millis(300);

/// A held lock.
pub(crate) enum LockGuard {
    Lease(Lease),
    Reader(ReadLease),
    /// A permit, and the number of slots.
    Permit {
        permit: Permit,
        slots: u16,
    },
    /// Several leases, all or none. Their deadline is the earliest one, and the loss of one is a loss.
    Several {
        leases: Leases,
        /// The name of the first lock.
        first: String,
    },
    /// A lock of the timestamp protocol. It has no fence and no owner.
    Timestamp {
        hold: TimestampHold,
        /// The entry of this lock in `LEASEHOLD_CHAIN`, by which nested runs recognize it.
        link: String,
    },
}

/// Asks the lock that the guard holds, of whichever kind it is.
macro_rules! of_either {
    ($guard:expr, $held:ident => $said:expr) => {
        match $guard {
            LockGuard::Lease($held) => $said,
            LockGuard::Reader($held) => $said,
            LockGuard::Permit { permit: $held, .. } => $said,
            LockGuard::Several { leases: $held, .. } => $said,
            LockGuard::Timestamp { hold: $held, .. } => $said,
        }
    };
}

impl LockGuard {
    /// The name of the lock: of several, the first.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Lease(lease) => lease.name(),
            Self::Reader(lease) => lease.name(),
            Self::Permit { permit, .. } => permit.name(),
            Self::Several { first, .. } => first,
            Self::Timestamp { hold, .. } => hold.name(),
        }
    }

    /// The token of the first lease, if that is held alone.
    fn token(&self) -> Option<String> {
        match self {
            Self::Lease(lease) => Some(lease.token()),
            Self::Several { leases, first } => leases.get(first)?.token(),
            Self::Reader(_) | Self::Permit { .. } | Self::Timestamp { .. } => None,
        }
    }

    /// The owner of the first lease, if there is one.
    fn owner(&self) -> Option<&Owner> {
        match self {
            Self::Lease(lease) => Some(lease.owner()),
            Self::Reader(lease) => Some(lease.owner()),
            Self::Permit { permit, .. } => Some(permit.owner()),
            Self::Several { leases, first } => leases.get(first).map(Lease::owner),
            Self::Timestamp { .. } => None,
        }
    }

    /// How the lock is held. The timestamp protocol has no modes.
    pub(crate) fn mode(&self) -> Option<Mode> {
        match self {
            Self::Lease(_) | Self::Several { .. } => Some(Mode::Exclusive),
            Self::Reader(_) => Some(Mode::Shared),
            Self::Permit { slots, .. } => Slots::new(*slots).ok().map(Mode::Slot),
            Self::Timestamp { .. } => None,
        }
    }

    /// The number of the slot.
    pub(crate) fn slot(&self) -> Option<u16> {
        match self {
            Self::Permit { permit, .. } => Some(permit.slot().number),
            _ => None,
        }
    }

    /// The name of the lock that is lost, or ends first.
    pub(crate) fn endangered(&self) -> &str {
        let Self::Several { leases, .. } = self else {
            return self.name();
        };
        let first = leases.iter().min_by_key(|lease| lease.valid_until());
        let lost = leases.iter().find(|lease| lease.is_lost());
        lost.or(first).map_or(self.name(), Lease::name)
    }

    /// The lock in messages: of several, the one that is lost or ends first.
    pub(crate) fn title(&self) -> String {
        let name = self.endangered();
        title(name, self.fence_of(name))
    }

    fn fence_of(&self, name: &str) -> Option<Fence> {
        match self {
            Self::Several { leases, .. } => leases.get(name).and_then(Lease::fence),
            one => one.fence(),
        }
    }

    /// All names, in quotes.
    pub(crate) fn names(&self) -> String {
        let others: Vec<String> = self.others().map(|lease| quoted(lease.name())).collect();
        let first = quoted(self.name());
        if others.is_empty() {
            return first;
        }
        format!("{first} (with {})", others.join(", "))
    }

    /// The fence of the first lock, if it has one; of a permit, that of its slot.
    pub(crate) fn fence(&self) -> Option<Fence> {
        match self {
            Self::Lease(lease) => Some(lease.fence()),
            Self::Reader(lease) => lease.fence(),
            Self::Permit { permit, .. } => Some(permit.slot().fence),
            Self::Several { leases, first } => leases.get(first).and_then(Lease::fence),
            Self::Timestamp { .. } => None,
        }
    }

    /// The leases beside the first one.
    fn others(&self) -> impl Iterator<Item = &Lease<AnyKind>> {
        let leases = match self {
            Self::Several { leases, .. } => Some(leases.iter()),
            _ => None,
        };
        let is_other = |lease: &&Lease<AnyKind>| lease.name() != self.name();
        leases.into_iter().flatten().filter(is_other)
    }

    /// Several locks as JSON, the first one first.
    pub(crate) fn json(&self) -> Option<Value> {
        let Self::Several { leases, first } = self else {
            return None;
        };
        let all = leases.get(first).into_iter().chain(self.others());
        let all: Vec<HeldLock<'_>> = all.map(HeldLock::of).collect();
        serde_json::to_value(all).ok()
    }

    pub(crate) fn valid_until(&self) -> Moment {
        of_either!(self, held => held.valid_until())
    }

    pub(crate) fn valid_for(&self) -> Duration {
        of_either!(self, held => held.valid_for())
    }

    pub(crate) fn is_lost(&self) -> bool {
        of_either!(self, held => held.is_lost())
    }

    pub(crate) fn loss(&self) -> Option<Lost> {
        of_either!(self, held => held.loss())
    }

    pub(crate) async fn lost(&self) -> Lost {
        of_either!(self, held => held.lost().await)
    }

    /// The reason of the last failed renewal, while the lock is not lost.
    pub(crate) fn doubt(&self) -> Option<String> {
        of_either!(self, held => held.doubt())
    }

    /// Releases the lock, now or after `keep`, and waits up to `limit` for the confirmation.
    pub(crate) async fn release(self, keep: Option<Duration>, limit: Duration) -> Released {
        let released = async {
            of_either!(self, held => match keep {
                Some(keep) => held.release_after(keep).await,
                None => held.release().await,
            })
        };
        Released::within(limit, released).await
    }

    /// The variables that tell a command about this lock and its store, `store`. They contain no password.
    pub(crate) fn variables(
        &self,
        ttl: Duration,
        waited: Duration,
        firing: Option<&str>,
        store: &Variables,
    ) -> Variables {
        // A timestamp lock has none of them. An outer run may have set them for another lock.
        let (owner, fence) = (self.owner(), self.fence());
        let slot_fence = fence.filter(|_| self.slot().is_some());
        let outer = env::var(CHAIN).ok().filter(|outer| !outer.is_empty());
        let mut chain: Vec<&str> = outer.as_deref().into_iter().collect();
        match self {
            Self::Timestamp { link, .. } => chain.push(link),
            Self::Lease(_) | Self::Reader(_) | Self::Permit { .. } => {
                chain.extend(owner.map(Owner::token));
            }
            Self::Several { leases, .. } => {
                chain.extend(leases.iter().map(|lease| lease.owner().token()));
            }
        }
        let now = format_rfc3339_millis(Clock::system().wall());
        let ours = [
            ("LEASEHOLD_LOCK", Some(self.name().to_owned())),
            ("LEASEHOLD_TTL_MS", Some(ttl.as_millis().to_string())),
            ("LEASEHOLD_WAITED_MS", Some(waited.as_millis().to_string())),
            // For people and logs only.
            ("LEASEHOLD_ACQUIRED_AT", Some(now.to_string())),
            (CHAIN, Some(chain.join(" "))),
            (
                "LEASEHOLD_LOCKS",
                self.json().map(|locks| locks.to_string()),
            ),
            ("LEASEHOLD_FIRING", firing.map(str::to_owned)),
            // The fences of two slots say nothing about each other.
            (
                "LEASEHOLD_FENCE",
                fence.xor(slot_fence).map(|fence| fence.to_string()),
            ),
            (
                "LEASEHOLD_SLOT_FENCE",
                slot_fence.map(|fence| fence.to_string()),
            ),
            ("LEASEHOLD_SLOT", self.slot().map(|slot| slot.to_string())),
            ("LEASEHOLD_MODE", self.mode().map(|mode| mode.to_string())),
            ("LEASEHOLD_TOKEN", self.token()),
            ("LEASEHOLD_HOLDER", owner.map(ToString::to_string)),
        ];
        let ours = ours.map(|(name, value)| (name, value.map(OsString::from)));
        ours.into_iter().chain(store.iter().cloned()).collect()
    }
}

/// A lock in messages.
pub(super) fn title(name: &str, fence: Option<Fence>) -> String {
    let name = quoted(name);
    match fence {
        Some(fence) => format!("the lease on {name} (fence {fence})"),
        None => format!("the lock {name} (timestamp protocol)"),
    }
}

/// One of several locks, as JSON.
#[derive(Serialize)]
struct HeldLock<'a> {
    name: &'a str,
    mode: String,
    fence: Option<u64>,
}

impl<'a> HeldLock<'a> {
    fn of(lease: &'a Lease<AnyKind>) -> Self {
        Self {
            name: lease.name(),
            mode: lease.mode().to_string(),
            fence: lease.fence().map(Fence::get),
        }
    }
}

/// The section of these options in `--help`.
const SECTION: &str = "Sharing keys with other programs";

/// The options of the timestamp protocol.
#[derive(Debug, Default, Args)]
pub(crate) struct TimestampArgs {
    /// The lock protocol: mutex, or timestamp, to share the key with clients that do SETNX, GET, GETSET and DEL
    #[arg(long, value_name = "PROTOCOL", value_enum, default_value_t, help_heading = SECTION, hide_short_help = true)]
    protocol: Protocol,

    /// The time unit of those clients: s or ms [default: s]
    #[arg(long, value_name = "UNIT", value_parser = ["s", "ms"], help_heading = SECTION, hide_short_help = true)]
    timestamp_unit: Option<String>,

    /// Send single commands, as those clients do, for a server that refuses scripts: hardly safer than those
    /// clients
    #[arg(long, help_heading = SECTION, hide_short_help = true)]
    timestamp_without_scripts: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Protocol {
    #[default]
    Mutex,
    Timestamp,
}

impl TimestampArgs {
    /// True if the protocol is `timestamp`; an error if the options contradict each other.
    pub(crate) fn is_chosen(&self, wait: &WaitArgs) -> Result<bool, String> {
        let refuse = |what: &str, why: &str| Err(format!("{what} cannot be used: {why}"));
        if self.protocol == Protocol::Mutex {
            let why = "it requires --protocol timestamp";
            return match (&self.timestamp_unit, self.timestamp_without_scripts) {
                (Some(_), _) => refuse("--timestamp-unit", why),
                (None, true) => refuse("--timestamp-without-scripts", why),
                (None, false) => Ok(false),
            };
        }
        if wait.max_waiters.is_some() {
            let why = "with --protocol timestamp there is no queue";
            return refuse("--max-waiters", why);
        }
        // A note from the environment may be for other commands.
        if wait.note.is_some() && env::var_os("LEASEHOLD_NOTE").is_none() {
            let why = "with --protocol timestamp no other client would see it";
            return refuse("--note", why);
        }
        Ok(true)
    }

    /// The timestamp lock of this name.
    pub(crate) fn lock(&self, client: &Client, name: &str, ttl: Duration) -> TimestampLock {
        let unit = match self.timestamp_unit.as_deref() {
            Some("ms") => Unit::Millis,
            _ => Unit::Seconds,
        };
        let lock = client.timestamp_lock(name).ttl(ttl).unit(unit);
        if self.timestamp_without_scripts {
            lock.without_scripts()
        } else {
            lock
        }
    }
}

/// The entry in [`CHAIN`] by which nested runs recognize the lock. A deadline does not identify its owner, so
/// the entry is made of the store and the key. It contains no spaces.
pub(crate) fn timestamp_link(store: &str, naming: &[(&'static str, String)], name: &str) -> String {
    let naming = naming.iter().map(|(_, value)| value.as_str());
    // The default template.
    let naming = naming.filter(|value| *value != "{}");
    let parts: Vec<&str> = [store].into_iter().chain(naming).chain([name]).collect();
    let bytes = parts.join("\n").into_bytes();
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    "timestamp:".to_owned() + &digits.collect::<String>()
}

/// Waits for the lock of this name, with its entry in [`CHAIN`].
pub(crate) async fn wait_for_timestamp(
    lock: TimestampLock,
    name: &str,
    link: String,
    how: &WaitArgs,
    signals: &mut Signals,
    terminal: Option<&Terminal>,
) -> Result<LockGuard, Exit> {
    let limit = how.limit()?;
    let (busy, mut is_new) = (watch::Sender::new(()), true);
    let mut found_busy = busy.subscribe();
    let lock = lock.on_wait(move |_| busy.send_replace(()));
    let asking = async {
        match limit {
            _ if how.once => lock.try_acquire().await,
            Some(limit) => lock.acquire_within(limit).await.map(Some),
            None => lock.acquire().await.map(Some),
        }
    };
    tokio::pin!(asking);
    let answer: Result<Option<TimestampHold>, Error> = loop {
        tokio::select! {
            // Signals have priority: a lock that arrives together with one must not be used.
            biased;
            signal = signals.next_ending() => return Err(interrupted(signal, terminal)),
            answer = &mut asking => break answer,
            Ok(()) = found_busy.changed(), if is_new => {
                is_new = false;
                if is_in_chain(&link) {
                    return Err(nested(name));
                }
                if !how.quiet {
                    say(&format!(
                        "{} is busy; polling it (timestamp protocol: there is no queue)",
                        quoted(name)
                    ));
                }
            }
        }
    };
    let refused = |code, said: String| {
        exit!(code, "{} {said} (exit {code})", quoted(name)).quiet_if(how.quiet)
    };
    let hold = match answer {
        Ok(Some(hold)) => hold,
        Ok(None) if is_in_chain(&link) => return Err(nested(name)),
        Ok(None) => return Err(refused(BUSY, "is busy".into())),
        Err(Error::Timeout(timeout)) => {
            let after = span(timeout.waited);
            return Err(refused(TIMEOUT, format!("is still busy after {after}")));
        }
        Err(error) => return Err(error.into()),
    };
    // Dropping the hold releases the lock: after a signal the command must not start.
    match signals.arrived().await {
        Some(signal) => Err(interrupted(signal, terminal)),
        None => Ok(LockGuard::Timestamp { hold, link }),
    }
}

fn nested(name: &str) -> Exit {
    exit!(
        USAGE,
        "{} is held by an outer `leasehold run`: you already hold this lock, so waiting for it would never end (exit {USAGE})",
        quoted(name)
    )
}
