//! The referee of a race: judges by the clients' logs, on the one clock of this host. It does not read the lock or its keys.
//!
//! All errors of measurement favour the rung: a hold begins when the reply that granted it has been read, and ends before the
//! command is sent that releases it.

use std::time::Duration;

use super::raced::Faults;

/// The log of one thread of a race in a round. Times are those of this host.
#[derive(Debug, Default)]
pub(super) struct RaceLog {
    pub(super) holds: Vec<Hold>,
    pub(super) writes: Vec<Write>,
    pub(super) faults: Faults,
}

/// A hold of the lock by a client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hold {
    /// When the command that took it was sent, however long after it was computed; on several servers, when the client began to
    /// ask them.
    pub(super) sent: Duration,
    /// When its client knew.
    pub(super) from: Duration,
    /// When its client released it, or its deadline passed by the client's own clock.
    pub(super) until: Duration,
    /// Its fence, if the rung promises an order of fences.
    pub(super) fence: Option<i16>,
}

/// A write that the resource accepted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write {
    /// When it was sent.
    pub(super) sent: Duration,
    /// When it was answered.
    pub(super) answered: Duration,
    /// The hold of its client in which it was computed.
    pub(super) hold: usize,
}

/// The findings so far.
#[derive(Debug, Default)]
pub(super) struct RaceFindings {
    pub(super) acquisitions: u64,
    pub(super) overlaps: u64,
    /// Since the race began.
    pub(super) first_overlap: Option<Duration>,
    pub(super) stuck: u64,
    pub(super) stale_writes: u64,
    pub(super) low_fences: u64,
    pub(super) lost_updates: u64,
    pub(super) orphan_writes: u64,
}

impl RaceFindings {
    /// Adds a round: the logs of its threads, the number of writes that the data contains in the end (`None` if they are not
    /// counted), and the beginning of the race.
    pub(super) fn judge(&mut self, logs: &[RaceLog], version: Option<u64>, began: Duration) {
        let mut holds: Vec<Hold> = logs.iter().flat_map(|log| log.holds.clone()).collect();
        holds.sort_unstable_by_key(|hold| hold.from);
        self.acquisitions += count(holds.len());
        let (overlaps, first) = overlaps(&holds);
        self.overlaps += overlaps;
        self.low_fences += low_fences(&holds);
        self.first_overlap = self
            .first_overlap
            .or(first.map(|at| at.saturating_sub(began)));

        let mut writes: Vec<(Write, Hold)> = logs.iter().flat_map(written).collect();
        writes.sort_unstable_by_key(|(write, _)| write.sent);
        self.stale_writes += stale(&writes);
        self.orphan_writes += orphans(&writes, &holds);
        let kept = version.unwrap_or(count(writes.len()));
        self.lost_updates += count(writes.len()).saturating_sub(kept);
    }
}

/// How many holds began during another one, and the time of the first.
fn overlaps(holds: &[Hold]) -> (u64, Option<Duration>) {
    let (mut overlaps, mut first, mut held_until) = (0, None, Duration::ZERO);
    // A hold that was over before its client knew does not count.
    for hold in holds.iter().filter(|hold| hold.from < hold.until) {
        if hold.from < held_until {
            overlaps += 1;
            first = first.or(Some(hold.from));
        }
        held_until = held_until.max(hold.until);
    }
    (overlaps, first)
}

/// How many holds have no higher fence than one that had begun before they were asked for. The holds are in the order in which
/// they began.
fn low_fences(holds: &[Hold]) -> u64 {
    let mut asked: Vec<&Hold> = holds.iter().collect();
    asked.sort_unstable_by_key(|hold| hold.sent);
    let mut earlier = holds.iter().peekable();
    let (mut highest, mut low) = (None, 0);
    for hold in asked {
        while let Some(before) = earlier.next_if(|before| before.from < hold.sent) {
            highest = highest.max(before.fence);
        }
        low += u64::from(hold.fence.is_some() && hold.fence <= highest);
    }
    low
}

fn written(log: &RaceLog) -> impl Iterator<Item = (Write, Hold)> + '_ {
    let of = |write: &Write| Some((*write, *log.holds.get(write.hold)?));
    log.writes.iter().filter_map(of)
}

/// How many writes were sent after one of a later hold had been answered. A hold is later if it was requested when the other
/// was known. The writes are in the order in which they were sent.
fn stale(writes: &[(Write, Hold)]) -> u64 {
    let mut answered: Vec<&(Write, Hold)> = writes.iter().collect();
    answered.sort_unstable_by_key(|(write, _)| write.answered);
    let mut answered = answered.into_iter().peekable();
    // When the latest of their holds was requested.
    let mut last_hold = Duration::ZERO;
    let mut stale = 0;
    for (write, hold) in writes {
        while let Some((_, earlier)) =
            answered.next_if(|(earlier, _)| earlier.answered < write.sent)
        {
            last_hold = last_hold.max(earlier.sent);
        }
        stale += u64::from(hold.from < last_hold);
    }
    stale
}

/// How many writes were sent after their hold was over, and answered during one other hold.
fn orphans(writes: &[(Write, Hold)], holds: &[Hold]) -> u64 {
    let is_orphan = |(write, own): &&(Write, Hold)| {
        let before = holds.partition_point(|hold| hold.from <= write.sent);
        let covers = |hold: &Hold| hold.until > write.answered && hold.from != own.from;
        // Holds may overlap, but not many: a client has one at a time.
        let near = &holds[before.saturating_sub(16)..before];
        own.until < write.sent && near.iter().any(covers)
    };
    count(writes.iter().filter(is_orphan).count())
}

fn count(of: usize) -> u64 {
    u64::try_from(of).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn hold(from: u64, until: u64) -> Hold {
        Hold {
            sent: ms(from - 1),
            from: ms(from),
            until: ms(until),
            fence: None,
        }
    }

    fn found(logs: &[RaceLog], version: u64) -> RaceFindings {
        let mut found = RaceFindings::default();
        found.judge(logs, Some(version), ms(0));
        found
    }

    fn log(holds: &[Hold], writes: &[(u64, usize)]) -> RaceLog {
        let write = |&(sent, hold): &(u64, usize)| Write {
            sent: ms(sent),
            answered: ms(sent + 1),
            hold,
        };
        RaceLog {
            holds: holds.to_vec(),
            writes: writes.iter().map(write).collect(),
            faults: Faults::default(),
        }
    }

    #[test]
    fn touching_holds_do_not_overlap_shared_moments_do() {
        let apart = [
            log(&[hold(10, 20), hold(30, 40)], &[]),
            log(&[hold(20, 30)], &[]),
        ];
        assert_eq!(
            (found(&apart, 0).acquisitions, found(&apart, 0).overlaps),
            (3, 0)
        );
        let shared = [log(&[hold(10, 20)], &[]), log(&[hold(19, 30)], &[])];
        assert_eq!(found(&shared, 0).overlaps, 1);
        assert_eq!(found(&shared, 0).first_overlap, Some(ms(19)));
    }

    #[test]
    fn short_hold_within_a_long_one_overlaps_and_so_does_the_next() {
        let logs = [
            log(&[hold(10, 50)], &[]),
            log(&[hold(20, 30), hold(40, 45)], &[]),
        ];
        assert_eq!(found(&logs, 0).overlaps, 2);
        let over_when_known = [log(&[hold(10, 50)], &[]), log(&[hold(20, 20)], &[])];
        assert_eq!(found(&over_when_known, 0).overlaps, 0);
    }

    #[test]
    fn a_write_after_one_of_a_later_hold_is_stale() {
        let first = hold(10, 20);
        let second = hold(30, 40);
        let in_order = [log(&[first], &[(15, 0)]), log(&[second], &[(35, 0)])];
        assert_eq!(found(&in_order, 2).stale_writes, 0);
        let late = [log(&[first], &[(45, 0)]), log(&[second], &[(35, 0)])];
        assert_eq!(found(&late, 2).stale_writes, 1);
        assert_eq!(found(&late, 2).orphan_writes, 0);
        let meanwhile = [log(&[first], &[(35, 0)]), log(&[second], &[])];
        assert_eq!(found(&meanwhile, 1).orphan_writes, 1);
    }

    #[test]
    fn a_fence_is_low_if_an_earlier_hold_has_it() {
        let fenced = |hold: Hold, fence| Hold {
            fence: Some(fence),
            ..hold
        };
        let first = fenced(hold(10, 20), 5);
        let low = |fence, from| {
            let logs = [
                log(&[first], &[]),
                log(&[fenced(hold(from, 40), fence)], &[]),
            ];
            found(&logs, 0).low_fences
        };
        assert_eq!((low(6, 30), low(5, 30), low(4, 30)), (0, 1, 1));
        // It was asked for before the first one was known.
        assert_eq!(low(4, 11), 0);
    }

    #[test]
    fn a_write_that_the_data_does_not_contain_is_lost() {
        let logs = [log(&[hold(10, 20)], &[(11, 0), (12, 0)])];
        assert_eq!(found(&logs, 2).lost_updates, 0);
        assert_eq!(found(&logs, 1).lost_updates, 1);
    }
}
