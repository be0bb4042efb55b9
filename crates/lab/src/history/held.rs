//! How long a lock may have been held, by a lease or by an unanswered acquire.

use crate::history::format::Outcome;
use crate::history::joined::History;
use crate::history::lease::Lease;
use crate::history::records::{Operation, Process};

impl Lease {
    /// Until when the lease may have been in the store: until the reply to its release. Without one, until a TTL and the orphan
    /// bound after its last sign of life, which is the end of its process if the library may have renewed it.
    pub(crate) fn held_until(&self, history: &History) -> u64 {
        let release = self.release.and_then(|at| history.operations.get(at));
        let answer = release.and_then(|release| release.done);
        let heard = match (release, answer) {
            (_, Some(done)) if done.outcome != Outcome::Unknown => {
                let gone_ns = back(history, self.invoked_ns, done.at_ns);
                // The holder reports it by its own deadline, and the store keeps it longer by the amount that its clock was set back.
                return if done.outcome == Outcome::Lost {
                    history.prolonged_ns(self.invoked_ns, gone_ns)
                } else {
                    gone_ns
                };
            }
            (_, Some(done)) => done.at_ns,
            (_, None) if self.told_ns.is_some() => self.used_ns,
            (_, None) => match history.processes.get(&self.proc) {
                Some(process) => process.end_ns(),
                None => self.used_ns,
            },
        };
        may_linger(history, self.invoked_ns, heard)
    }
}

/// Until when the store may hold a lock that was certainly gone at that time: a TTL and the orphan bound after a failover to
/// a replica that had not received the removal.
fn back(history: &History, from_ns: u64, gone_ns: u64) -> u64 {
    let lost = history.forgotten_ns(gone_ns);
    lost.map_or(gone_ns, |lost| may_linger(history, from_ns, lost))
}

/// Until when the store may hold a lock that was requested at `from_ns` with the last sign of life at `heard_ns`: a TTL and
/// the orphan bound, counted from the end of the outage at that time if any, plus the amount by which its clock was set back.
pub(crate) fn may_linger(history: &History, from_ns: u64, heard_ns: u64) -> u64 {
    let campaign = &history.campaign;
    let heard_ns = history.forgotten_ns(heard_ns).unwrap_or(heard_ns);
    let until_ns = history
        .served_ns(heard_ns)
        .saturating_add(campaign.ttl_ns())
        .saturating_add(campaign.bounds.orphan_ns());
    history.prolonged_ns(from_ns, until_ns)
}

/// The time in which an acquire may have had the lock: while in progress, as a lease, or as an orphan.
pub(crate) fn may_hold(history: &History, acquire: &Operation) -> (u64, u64) {
    let lease = acquire.lease.and_then(|at| history.leases.get(at));
    let from_ns = acquire.invoked_ns;
    let until = match (acquire.done, lease) {
        (_, Some(lease)) => lease.held_until(history),
        (Some(done), None) if done.outcome == Outcome::Refused => {
            back(history, from_ns, done.at_ns)
        }
        (Some(done), None) => may_linger(history, from_ns, done.at_ns),
        (None, None) => {
            let process = history.processes.get(&acquire.proc);
            may_linger(history, from_ns, process.map_or(from_ns, Process::end_ns))
        }
    };
    (from_ns, until)
}
