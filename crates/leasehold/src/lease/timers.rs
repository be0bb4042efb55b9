//! Timers in the order of their times, and the alarm that wakes the client's task when one is due. The timers read no clock: each caller
//! passes the time.
//!
//! The task sleeps until the first timer is due. A timer that is due later wakes no thread. After a quiet moment the task wakes once
//! more before it sleeps without a limit. So a client that acquires and releases all the time, and each time adds and removes a renewal
//! far ahead, never pays for a wake-up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Clock, Moment};
use crate::sync::AtomicBool;

/// How long the task goes on waking up after the last timer was added.
const QUIET: Duration = Duration::from_secs(1);

/// So many removed timers may stay in the heap, beside one for each timer.
const REMOVED: usize = 64;

/// Things of type `T`, each due at some moment.
#[derive(Debug)]
pub(super) struct Timers<T> {
    /// The first one is a timer. Of the others, some may have been removed.
    heap: BinaryHeap<Reverse<Ticket>>,
    /// Each timer at its place, with its number.
    slots: Vec<Option<(u32, T)>>,
    /// The places without a timer.
    free: Vec<u32>,
    next_id: u32,
}

/// The handle of one of the [`Timers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket {
    at: Moment,
    /// Tells timers of one place apart. It may begin anew: no removed timer stays in the heap for that long.
    id: u32,
    slot: u32,
}

/// When the timers have to be checked next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NextTimer {
    pub(super) at: Moment,
    /// Also a host that was suspended has to look in time.
    pub(super) is_precise: bool,
}

impl NextTimer {
    /// The sooner one of both, as precise as either.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            at: self.at.min(other.at),
            is_precise: self.is_precise || other.is_precise,
        }
    }
}

impl Ticket {
    pub(super) fn at(self) -> Moment {
        self.at
    }
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            next_id: 0,
        }
    }
}

impl<T> Timers<T> {
    /// Adds a timer for `what` at `at`.
    pub(super) fn add(&mut self, at: Moment, what: T) -> Ticket {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        self.slots[slot as usize] = Some((id, what));
        let ticket = Ticket { at, id, slot };
        self.heap.push(Reverse(ticket));
        ticket
    }

    /// Removes a timer, if it has not fired.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let (_, what) = self.slots[ticket.slot as usize].take_if(|(id, _)| *id == ticket.id)?;
        self.free.push(ticket.slot);
        let is_timer = |Reverse(ticket): &Reverse<Ticket>| {
            let timer = self.slots[ticket.slot as usize].as_ref();
            timer.is_some_and(|(id, _)| *id == ticket.id)
        };
        let timers = self.slots.len() - self.free.len();
        if self.heap.len() > 2 * timers + REMOVED {
            self.heap.retain(is_timer);
        }
        while self.heap.peek().is_some_and(|first| !is_timer(first)) {
            self.heap.pop();
        }
        Some(what)
    }

    /// Takes out the first timer that is due at `now`.
    pub(super) fn pop(&mut self, now: Moment) -> Option<T> {
        let Reverse(first) = *self.heap.peek()?;
        (first.at <= now).then(|| self.remove(first)).flatten()
    }

    /// When the first timer is due.
    pub(super) fn first(&self) -> Option<Moment> {
        self.heap.peek().map(|Reverse(ticket)| ticket.at)
    }
}

/// When the task wakes next. It is stored beside the timers, under one lock.
#[derive(Debug, Default)]
pub(super) struct WakePlan {
    /// `None` while it sleeps without a limit.
    looks_at: Option<NextTimer>,
    /// A timer was added since it last looked.
    added: bool,
}

impl WakePlan {
    /// Adds a timer. Returns whether the task has to be woken for it.
    pub(super) fn add(&mut self, next: NextTimer) -> bool {
        self.added = true;
        let sooner = self.looks_at.map_or(next, |at| at.and(next));
        let is_late = self.looks_at != Some(sooner);
        self.looks_at = Some(sooner);
        is_late
    }

    /// The task is about to sleep, and `first` is the first timer. Returns until when it sleeps.
    pub(super) fn sleep(&mut self, first: Option<NextTimer>, now: Moment) -> Option<NextTimer> {
        let active = std::mem::take(&mut self.added);
        let quiet = || NextTimer {
            at: now.after(QUIET),
            is_precise: true,
        };
        self.looks_at = first.or_else(|| active.then(quiet));
        self.looks_at
    }
}

/// Wakes the task.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    bell: Notify,
    closed: AtomicBool,
}

impl Alarm {
    pub(super) fn ring(&self) {
        self.bell.notify_one();
    }

    /// No timer is of interest any more.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// Calls `look` each time a timer may be due; `look` returns until when to sleep. Ends when the alarm is closed.
    pub(super) async fn run(&self, clock: &Clock, mut look: impl FnMut() -> Option<NextTimer>) {
        while !self.closed.load(Ordering::SeqCst) {
            let until = look();
            tokio::select! {
                () = sleep_until(clock, until) => {}
                () = self.bell.notified() => {}
            }
        }
    }
}

async fn sleep_until(clock: &Clock, next: Option<NextTimer>) {
    match next {
        Some(next) if next.is_precise => clock.sleep_until(next.at).await,
        Some(next) => clock.sleep_until_about(next.at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;

    use super::*;

    fn precise(at: Moment) -> NextTimer {
        NextTimer {
            at,
            is_precise: true,
        }
    }

    /// The timers of a test, with their times.
    #[derive(Default)]
    struct Scene {
        alarm: Alarm,
        timers: std::sync::Mutex<(Timers<&'static str>, WakePlan)>,
        seen: std::sync::Mutex<Vec<(&'static str, Moment)>>,
    }

    impl Scene {
        fn add(&self, at: Moment, what: &'static str) -> bool {
            let (timers, watch) = &mut *self.timers.lock().unwrap();
            timers.add(at, what);
            let rings = watch.add(precise(at));
            if rings {
                self.alarm.ring();
            }
            rings
        }

        fn look(&self, now: Moment) -> Option<NextTimer> {
            let (timers, watch) = &mut *self.timers.lock().unwrap();
            while let Some(what) = timers.pop(now) {
                self.seen.lock().unwrap().push((what, now));
            }
            watch.sleep(timers.first().map(precise), now)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn alarm_looks_at_timer_added_while_it_slept() {
        let clock = Clock::virtual_time();
        let begun = clock.now();
        let second = Duration::from_secs(1);
        let scene = Arc::new(Scene::default());
        scene.add(begun.after(second * 3), "late");
        let looks = scene.alarm.run(&clock, || scene.look(clock.now()));
        let adds = async {
            clock.sleep(second / 2).await;
            assert!(scene.add(begun.after(second), "soon"));
            clock.sleep(second * 4).await;
            scene.alarm.close();
        };
        tokio::join!(looks, adds);
        let seen = scene.seen.lock().unwrap();
        let (soon, late) = (begun.after(second), begun.after(second * 3));
        assert_eq!(*seen, [("soon", soon), ("late", late)]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_due_later_wakes_nobody() {
        let clock = Clock::virtual_time();
        let begun = clock.now();
        let scene = Scene::default();
        let mut run = std::pin::pin!(scene.alarm.run(&clock, || scene.look(clock.now())));
        assert!((&mut run).now_or_never().is_none());
        assert!(
            scene.add(begun.after(QUIET * 2), "first"),
            "it slept for good"
        );
        assert!((&mut run).now_or_never().is_none());
        let mut later = (0..100).map(|at| begun.after(QUIET * 2 + Duration::from_millis(at)));
        assert!(!later.any(|at| scene.add(at, "later")));
    }

    #[test]
    fn it_sleeps_once_more_for_a_quiet_moment_and_then_for_good() {
        let now = Moment::from_micros(5_000_000);
        let mut watch = WakePlan::default();
        assert!(watch.add(precise(now.after(QUIET * 9))));
        // Removed meanwhile.
        assert_eq!(watch.sleep(None, now), Some(precise(now.after(QUIET))));
        assert!(
            !watch.add(precise(now.after(QUIET * 9))),
            "it looks before that"
        );
        assert_eq!(watch.sleep(None, now), Some(precise(now.after(QUIET))));
        assert_eq!(watch.sleep(None, now), None);
    }

    #[test]
    fn things_come_when_they_are_due_and_what_was_removed_does_not() {
        let at = |second: u64| Moment::from_micros(second * 1_000_000);
        let mut timers = Timers::default();
        timers.add(at(3), "late");
        let gone = timers.add(at(1), "gone");
        timers.add(at(2), "soon");
        timers.add(at(2), "as soon, and later");
        assert_eq!(timers.remove(gone), Some("gone"));
        assert_eq!(timers.remove(gone), None);
        assert_eq!((timers.first(), timers.pop(at(1))), (Some(at(2)), None));
        assert_eq!(timers.pop(at(2)), Some("soon"));
        assert_eq!(timers.pop(at(2)), Some("as soon, and later"));
        assert_eq!(timers.pop(at(2)), None);
        assert_eq!(timers.pop(at(4)), Some("late"));
        assert_eq!((timers.first(), timers.pop(at(4))), (None, None));
    }

    #[test]
    fn removed_timers_take_little_room_and_keep_none_late() {
        let (mut timers, mut rng) = (Timers::default(), fastrand::Rng::with_seed(7));
        let mut tickets = Vec::new();
        for number in 0..100_000_u32 {
            let at = Moment::from_micros(rng.u64(..1_000_000));
            tickets.push(timers.add(at, number));
            if tickets.len() > 1_000 {
                let gone = tickets.swap_remove(rng.usize(..tickets.len()));
                assert!(timers.remove(gone).is_some());
            }
            assert!(timers.heap.len() <= 2 * tickets.len() + REMOVED + 1);
            assert!(timers.slots.len() <= 1_001);
        }
        tickets.sort();
        for ticket in tickets {
            assert_eq!(timers.first(), Some(ticket.at));
            let due = timers.pop(ticket.at);
            assert_eq!(due, Some(ticket.id));
        }
        assert_eq!(timers.first(), None);
    }
}
