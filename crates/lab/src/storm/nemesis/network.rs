//! Harm to the way between workers and server, and to what the server keeps beside the locks. Must never take a lock itself out of
//! the server but by a failover.

use std::time::Duration;

use leasehold_history::FaultKind;

use super::{Nemesis, TICK};
use crate::host_time;
use crate::storm::network::Hole;
use crate::storm::servers::COUNTER;

/// How often something is tried that needs somebody to be there: after a restart it may take some time.
const TRIES: u32 = 2_000;

/// What stands beside a lock, but for the counter of all fences.
const BESIDE: [&str; 2] = ["lh-queue", "lh-waiters"];

/// Deletes the counter if the clock has passed it.
const FORGET: &str = "local last, time = redis.call('GET', KEYS[1]), redis.call('TIME')
    local passed = last and tonumber(last) < time[1] * 1000000 + time[2]
    return passed and redis.call('DEL', KEYS[1]) or 0";

impl Nemesis<'_> {
    /// Holds up every second connection.
    pub(super) fn hold_up(
        &mut self,
        kind: FaultKind,
        half: u64,
        lasts: Duration,
    ) -> Result<(), String> {
        let hole = Hole {
            requests: kind != FaultKind::BlackHoleReplies,
            replies: kind != FaultKind::BlackHoleRequests,
            half,
        };
        self.until("a connection", |nemesis| {
            Ok(nemesis.servers()?.network().hold_up(hole) > 0)
        })?;
        let from = host_time::up_ns();
        self.rest(host_time::up() + lasts)?;
        let until = host_time::up_ns();
        self.servers()?.network().clear();
        self.fault(kind, "server", from, Some(until))
    }

    /// The replica stops following, and takes over this long after.
    pub(super) fn fail_over(&mut self, lag: Duration) -> Result<(), String> {
        let mut from = 0;
        self.let_it_pass_all_fences()?;
        self.until("a replica that follows", |nemesis| {
            from = host_time::up_ns();
            nemesis.servers()?.is_followed()
        })?;
        self.servers()?.part()?;
        self.rest(host_time::up() + lag)?;
        self.servers()?.close_network();
        // The last block may end some time ahead.
        self.let_it_pass_all_fences()?;
        self.loses_what_did_not_follow()?;
        // Nobody is answered any more by the old one, nor yet by the new one.
        let until = host_time::up_ns();
        self.epoch += 1;
        self.server_starts(until)?;
        self.servers()?.change()?;
        self.fault(FaultKind::Failover, "server", from, Some(until))
    }

    /// Deletes what stands beside some lock: one kind of key, or all. But the counter of fences is left alone until the clock has
    /// passed it.
    pub(super) fn evict(&mut self, whom: u64) -> Result<(), String> {
        let which = usize::try_from(whom % (BESIDE.len() as u64 + 2)).unwrap_or_default();
        let (mut from, mut tried) = (0, 0);
        let locks = self.locks;
        self.until("a key beside a lock", |nemesis| {
            tried += 1;
            // Nobody may wait for a while.
            let anything = tried > TRIES / 4;
            if anything {
                nemesis.let_it_pass_all_fences()?;
            }
            let (counter, beside) = match BESIDE.get(which) {
                Some(one) if !anything => (false, std::slice::from_ref(one)),
                None if which == BESIDE.len() && !anything => (true, &[][..]),
                _ => (true, &BESIDE[..]),
            };
            from = host_time::up_ns();
            let mut gone = counter && nemesis.evict_counter()?;
            for lock in (0..locks).map(|step| 1 + (whom / 4 + step) % locks) {
                let keys = beside.iter().map(|beside| format!("{{m{lock}}}:{beside}"));
                let words: Vec<String> = std::iter::once("DEL".to_owned()).chain(keys).collect();
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                if words.len() > 1 && nemesis.deletes(&words)? {
                    gone = true;
                    break;
                }
            }
            Ok(gone)
        })?;
        self.fault(FaultKind::Evict, "server", from, Some(host_time::up_ns()))
    }

    /// Whether there was a counter, and it may be forgotten, and was.
    fn evict_counter(&mut self) -> Result<bool, String> {
        if !self.servers()?.may_forget()? {
            return Ok(false);
        }
        // Asked once more where nobody draws between the look and the deletion.
        let gone = self.deletes(&["EVAL", FORGET, "1", COUNTER])?;
        if gone {
            let now = self.servers()?.time_us()?;
            self.loses_counter(now);
        }
        Ok(gone)
    }

    /// Whether a command deletes anything.
    fn deletes(&mut self, words: &[&str]) -> Result<bool, String> {
        let deleted = redis::from_redis_value::<u64>(self.command(words)?);
        Ok(deleted.map_err(|error| error.to_string())? > 0)
    }

    /// Tries something until it is done.
    pub(super) fn until(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Self) -> Result<bool, String>,
    ) -> Result<(), String> {
        for _ in 0..TRIES {
            if done(self)? {
                return Ok(());
            }
            self.rest(host_time::up() + TICK)?;
        }
        Err(format!("there is no sign of {what}"))
    }
}
