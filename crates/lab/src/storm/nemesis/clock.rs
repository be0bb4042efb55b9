//! Jumps of the servers' clock. No fence is forgotten before the clock has passed it, since fences then fall, as documented.

use std::time::Duration;

use super::Nemesis;
use crate::history::FaultKind;
use crate::host_time;

/// The size of a jump in milliseconds, plus up to two fifths.
const FAR: [u64; 5] = [100, 250, 600, 1_500, 3_500];

/// How long the clock may take to pass all fences: it may have been set back more than once.
const PATIENCE: Duration = Duration::from_secs(120);

/// The size of this jump.
fn distance(drawn: u64) -> Duration {
    let which = usize::try_from(drawn % FAR.len() as u64).unwrap_or_default();
    let least = FAR.get(which).copied().unwrap_or(FAR[0]);
    Duration::from_micros(least * 1_000 + drawn / FAR.len() as u64 % (least * 400))
}

impl Nemesis<'_> {
    /// Sets the clock of the servers forward or back.
    pub(super) fn jump(&mut self, kind: FaultKind, drawn: u64) -> Result<(), String> {
        let by_ns = u64::try_from(distance(drawn).as_nanos()).unwrap_or_default();
        let signed = i64::try_from(by_ns).unwrap_or_default();
        let back = kind == FaultKind::ClockBack;
        if back {
            self.let_a_fence_be_drawn()?;
        }
        let clock = self.servers()?.clock()?;
        let from = host_time::up_ns();
        clock.jump(if back { -signed } else { signed })?;
        let until = host_time::up_ns();
        if !self.servers()?.show_the_clock()? {
            return Err("a server does not show that its clock has jumped".into());
        }
        self.stage.jump(kind, "server", [from, until], by_ns)
    }

    /// Whether the servers' clock shows a time that it has shown before.
    pub(super) fn clock_is_behind(&mut self) -> bool {
        let clock = self.servers().and_then(|servers| servers.clock());
        clock.is_ok_and(|clock| !clock.has_caught_up())
    }

    /// Waits until a fence is drawn, if the counter was lost.
    fn let_a_fence_be_drawn(&mut self) -> Result<(), String> {
        let began = host_time::up();
        while let Some(lost) = self.lost {
            if self.servers()?.counter()? > Some(lost) {
                self.lost = None;
            } else if host_time::up().saturating_sub(began) > PATIENCE {
                return Err("nobody draws a fence since the counter was lost".into());
            } else {
                self.stage.tick()?;
            }
        }
        Ok(())
    }

    /// Records the loss of the counter, which was at most this.
    pub(super) fn loses_counter(&mut self, last: i64) {
        self.lost = self.lost.max(Some(last));
    }

    /// Records that the promoted replica does not have the last fences.
    pub(super) fn loses_what_did_not_follow(&mut self) -> Result<(), String> {
        let servers = self.servers()?;
        let (had, has) = (servers.counter()?, servers.counter_that_follows()?);
        if let Some(had) = had.filter(|had| has != Some(*had)) {
            self.loses_counter(had);
        }
        Ok(())
    }

    /// Waits until the servers' clock has passed all fences, so that none falls when they are forgotten.
    pub(super) fn let_it_pass_all_fences(&mut self) -> Result<(), String> {
        let began = host_time::up();
        while !self.servers()?.may_forget()? {
            if host_time::up().saturating_sub(began) > PATIENCE {
                return Err("fences stay ahead of the servers' clock".into());
            }
            self.stage.tick()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_jumps_by_a_tenth_of_a_second_to_five() {
        let mut rng = crate::rng::Rng::new(7);
        let all: Vec<Duration> = (0..1_000).map(|_| distance(rng.next())).collect();
        let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
        assert!((100..120).contains(&least.as_millis()), "{least:?}");
        assert!((4_000..5_000).contains(&most.as_millis()), "{most:?}");
    }
}
