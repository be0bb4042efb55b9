//! The measurements of an experiment, and the check that the lock was exclusive.
//!
//! - **SC1** At no time do two clients believe that they hold the lock.

use serde::Serialize;

use super::event_queue::ClientNumber;

/// The results of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// The way of waiting.
    pub way: &'static str,
    /// The number of clients.
    pub clients: u32,
    /// The number of measured hand-overs.
    pub hand_overs: u64,
    /// The measured time, in seconds of virtual time.
    pub seconds: f64,
    /// The median time from the arrival of a release at the store until the next holder knows, in milliseconds.
    pub gap_p50_ms: f64,
    /// The 99th percentile of that time, in milliseconds.
    pub gap_p99_ms: f64,
    /// The longest such time, in milliseconds.
    pub gap_max_ms: f64,
    /// Commands that arrived at the store, for each hand-over.
    pub commands: f64,
    /// The share of the time in which the server was busy.
    pub server: f64,
    /// The share of the time in which a client knew that it held the lock.
    pub lock: f64,
    /// The share of waiters that had waited longer than the new holder: 0 in a queue, a half in a lottery.
    pub jumped: f64,
    /// How often the lock went to the client that had just released it.
    pub again: f64,
    /// Unclaimed grants.
    pub lapsed: u64,
    /// Fairness, known if there were ten turns for each client.
    pub fairness: Option<Fairness>,
}

/// Fairness of the grants.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fairness {
    /// The longest wait, including waits that last at the end, relative to the mean.
    pub max_over_mean: f64,
    /// Jain's index of the grants per client: 1 when all have as many.
    pub jain: f64,
    /// Clients without a grant.
    pub starved: u64,
}

/// Takes the measurements.
#[derive(Debug)]
pub(super) struct Meter {
    /// The client that believes to hold the lock, since when, and until when at most.
    holder: Option<(ClientNumber, u64, u64)>,
    last_holder: Option<ClientNumber>,
    /// When the last release arrived at the store, until the next client knows that it holds.
    released_at: Option<u64>,
    /// Since when each client waits; `NEVER` if it does not.
    asked: Vec<u64>,
    waiting: u64,
    /// The number of hand-overs before the measurement.
    warm_up: u64,
    /// The beginning of the measurement.
    since: Option<u64>,
    gaps: Vec<u64>,
    held: u64,
    waits: (u64, u128, u64),
    /// Per client; `None` if it has ended.
    grants: Vec<Option<u32>>,
    jumped: f64,
    again: u64,
    pub(super) lapsed: u64,
}

const NEVER: u64 = u64::MAX;

impl Meter {
    pub(super) fn new(clients: u32, warm_up: u64) -> Self {
        let clients = clients as usize;
        Self {
            holder: None,
            last_holder: None,
            released_at: None,
            asked: vec![NEVER; clients],
            waiting: 0,
            warm_up,
            since: None,
            gaps: Vec::new(),
            held: 0,
            waits: (0, 0, 0),
            grants: vec![Some(0); clients],
            jumped: 0.0,
            again: 0,
            lapsed: 0,
        }
    }

    /// How many hand-overs were measured.
    pub(super) fn hand_overs(&self) -> u64 {
        self.gaps.len() as u64
    }

    /// A client wants the lock.
    pub(super) fn wants(&mut self, client: ClientNumber, now: u64) {
        self.asked[client as usize] = now;
        self.waiting += 1;
    }

    /// A client waits no longer, and has no lock.
    pub(super) fn gives_up(&mut self, client: ClientNumber) {
        if std::mem::replace(&mut self.asked[client as usize], NEVER) != NEVER {
            self.waiting -= 1;
        }
    }

    /// A client ended while it waited.
    pub(super) fn ends(&mut self, client: ClientNumber) {
        self.gives_up(client);
        self.grants[client as usize] = None;
    }

    /// A client learns that it holds the lock until `until`. Returns whether the measurement begins here.
    ///
    /// # Panics
    /// If another client believes so at the same time (SC1): a bug in the rules or in the experiment.
    pub(super) fn knows(&mut self, client: ClientNumber, now: u64, until: u64) -> bool {
        if let Some((other, since, valid)) = self.holder.take() {
            assert!(
                now >= valid,
                "SC1: {client} learns at {now} that it holds what {other} holds from {since} to {valid}"
            );
            self.add_held(since, valid);
        }
        self.holder = Some((client, now, until));
        let asked = std::mem::replace(&mut self.asked[client as usize], NEVER);
        self.waiting -= 1;
        let again = self.last_holder.replace(client) == Some(client);
        let Some(released_at) = self.released_at.take() else {
            return false;
        };
        if self.warm_up > 0 {
            self.warm_up -= 1;
            let begins = self.warm_up == 0;
            self.since = begins.then_some(now);
            return begins;
        }
        self.gaps.push(now - released_at);
        self.again += u64::from(again);
        let wait = now - asked;
        let (count, sum, max) = self.waits;
        self.waits = (count + 1, sum + u128::from(wait), max.max(wait));
        if let Some(grants) = &mut self.grants[client as usize] {
            *grants += 1;
        }
        if self.waiting > 0 {
            let before = self.asked.iter().filter(|&&other| other < asked).count();
            self.jumped += ratio(before as u64, self.waiting);
        }
        false
    }

    /// A client has a new deadline.
    pub(super) fn extends(&mut self, client: ClientNumber, until: u64) {
        if let Some(holder) = self.holder.as_mut().filter(|holder| holder.0 == client) {
            holder.2 = until;
        }
    }

    /// A client releases the lock, at the latest at its deadline.
    pub(super) fn lets_go(&mut self, client: ClientNumber, now: u64) {
        if let Some((_, since, until)) = self.holder.take_if(|holder| holder.0 == client) {
            self.add_held(since, until.min(now));
        }
    }

    /// The release of the holder arrives at the store.
    pub(super) fn released(&mut self, now: u64) {
        self.released_at = Some(now);
    }

    fn add_held(&mut self, from: u64, to: u64) {
        if let Some(since) = self.since {
            self.held += to.saturating_sub(from.max(since));
        }
    }

    /// The results at `now`, with the server's counts and busy time.
    pub(super) fn figures(
        mut self,
        way: &'static str,
        now: u64,
        server: (u64, u64, u64),
    ) -> Figures {
        if let Some((_, since, until)) = self.holder.take() {
            self.add_held(since, until.min(now));
        }
        self.gaps.sort_unstable();
        let (steps, busy, time) = server;
        let count = self.hand_overs();
        let quantile = |percent: usize| {
            let last = self.gaps.len().saturating_sub(1);
            millis(self.gaps.get(last * percent / 100).copied().unwrap_or(0))
        };
        Figures {
            way,
            clients: u32::try_from(self.grants.len()).unwrap_or(u32::MAX),
            hand_overs: count,
            seconds: millis(time) / 1_000.0,
            gap_p50_ms: quantile(50),
            gap_p99_ms: quantile(99),
            gap_max_ms: quantile(100),
            commands: ratio(steps, count),
            server: ratio(busy, time),
            lock: ratio(self.held, time),
            jumped: self.jumped / float(count.max(1)),
            again: ratio(self.again, count),
            lapsed: self.lapsed,
            fairness: self.fairness(now),
        }
    }

    /// Only with ten turns for each client: a shorter measurement would look unfair.
    fn fairness(&self, now: u64) -> Option<Fairness> {
        let (count, sum, max) = self.waits;
        if count < 10 * self.grants.len() as u64 {
            return None;
        }
        let waiting = self.asked.iter().filter(|&&asked| asked != NEVER);
        let longest = waiting
            .map(|asked| now.saturating_sub(*asked))
            .fold(max, u64::max);
        let mean = u64::try_from(sum / u128::from(count)).unwrap_or(u64::MAX);
        let living = || self.grants.iter().flatten();
        let squares: u64 = living().map(|&grants| u64::from(grants).pow(2)).sum();
        Some(Fairness {
            max_over_mean: ratio(longest, mean),
            jain: float(count).powi(2) / (float(living().count() as u64) * float(squares)),
            starved: living().filter(|&&grants| grants == 0).count() as u64,
        })
    }
}

fn millis(nanos: u64) -> f64 {
    float(nanos) / 1e6
}

fn ratio(part: u64, whole: u64) -> f64 {
    float(part) / float(whole.max(1))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "figures for people, far below 2^52"
)]
pub(super) const fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::Meter;

    fn two_know(second: u64) {
        let mut meter = Meter::new(2, 0);
        meter.wants(0, 0);
        meter.wants(1, 0);
        meter.knows(0, 10, 100);
        meter.knows(1, second, 200);
    }

    #[test]
    #[should_panic(expected = "SC1: 1 learns at 99 that it holds what 0 holds from 10 to 100")]
    fn two_holders_at_once_are_found() {
        two_know(99);
    }

    #[test]
    fn a_lease_that_is_over_is_no_second_holder() {
        two_know(100);
    }
}
