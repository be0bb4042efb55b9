//! Faults of the network path, and of the keys beside the locks. A lock itself is lost only by a failover.

use std::time::Duration;

use super::Nemesis;
use crate::history::FaultKind;
use crate::host_time;
use crate::storm::network::Hole;
use crate::storm::servers::COUNTER;

/// How often an action is tried that needs a connected client: after a restart that may take some time.
const TRIES: u32 = 2_000;

/// The keys beside a lock, without the fence counter.
const BESIDE: [&str; 2] = ["lh-queue", "lh-waiters"];

/// Deletes the counter if the clock has passed it.
const FORGET: &str = "local last, time = redis.call('GET', KEYS[1]), redis.call('TIME')
    local passed = last and tonumber(last) < time[1] * 1000000 + time[2]
    return passed and redis.call('DEL', KEYS[1]) or 0";

impl Nemesis<'_> {
    /// Delays every second connection.
    pub(super) fn hold_up(
        &mut self,
        kind: FaultKind,
        half: u64,
        lasts: Duration,
    ) -> Result<(), String> {
        let hole = Hole {
            requests: kind != FaultKind::BlackHoleReplies,
            replies: kind != FaultKind::BlackHoleRequests,
            half: Some(half),
        };
        self.until("a connection", |nemesis| {
            Ok(nemesis.servers()?.network().hold_up(hole) > 0)
        })?;
        let from = host_time::up_ns();
        self.stage.rest(host_time::up() + lasts)?;
        let until = host_time::up_ns();
        self.servers()?.network().clear();
        self.stage.fault(kind, "server", from, Some(until))
    }

    /// The replica stops following, and is promoted this long after.
    pub(super) fn fail_over(&mut self, lag: Duration) -> Result<(), String> {
        let mut from = 0;
        self.let_it_pass_all_fences()?;
        self.until("a replica that follows", |nemesis| {
            from = host_time::up_ns();
            nemesis.servers()?.is_followed()
        })?;
        self.servers()?.part()?;
        self.stage.rest(host_time::up() + lag)?;
        self.servers()?.close_network();
        // The last block of fences may end some time ahead.
        self.let_it_pass_all_fences()?;
        self.loses_what_did_not_follow()?;
        // No client reaches the old server any more, nor yet the new one.
        let until = host_time::up_ns();
        self.epoch += 1;
        self.server_starts(until)?;
        self.servers()?.change()?;
        self.stage
            .fault(FaultKind::Failover, "server", from, Some(until))
    }

    /// Deletes the keys beside some lock: one kind of key, or all. The fence counter is not deleted before the clock has passed it.
    pub(super) fn evict(&mut self, whom: u64) -> Result<(), String> {
        let which = usize::try_from(whom % (BESIDE.len() as u64 + 2)).unwrap_or_default();
        let (mut from, mut tried) = (0, 0);
        let locks = self.locks;
        self.until("a key beside a lock", |nemesis| {
            tried += 1;
            // There may be no waiter for a while.
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
                if words.len() > 1 && nemesis.command::<u64>(&words)? > 0 {
                    gone = true;
                    break;
                }
            }
            Ok(gone)
        })?;
        self.stage
            .fault(FaultKind::Evict, "server", from, Some(host_time::up_ns()))
    }

    /// Deletes the counter if it exists and the clock has passed it. Returns whether it did.
    fn evict_counter(&mut self) -> Result<bool, String> {
        if !self.servers()?.may_forget()? {
            return Ok(false);
        }
        // Tried again if no fence was drawn between the check and the deletion.
        let gone = self.command::<u64>(&["EVAL", FORGET, "1", COUNTER])? > 0;
        if gone {
            let now = self.servers()?.time_us()?;
            self.loses_counter(now);
        }
        Ok(gone)
    }

    /// Tries an action until it succeeds.
    pub(super) fn until(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Self) -> Result<bool, String>,
    ) -> Result<(), String> {
        for _ in 0..TRIES {
            if done(self)? {
                return Ok(());
            }
            self.stage.tick()?;
        }
        Err(format!("there is no sign of {what}"))
    }
}
