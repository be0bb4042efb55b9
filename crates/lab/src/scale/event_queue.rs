//! The queue of future events, in virtual time. Runs of one seed are equal: events of the same nanosecond happen in the order
//! in which they were planned.
//!
//! All messages in one direction take the same time, so each direction is a plain queue; only timers need a heap. So a run
//! with a million clients takes seconds.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A client, by number.
pub(super) type ClientNumber = u32;

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScheduledEvent<Command, Answer, Timer> {
    Arrives(Command),
    Answered(Answer),
    Due(Timer),
}

/// A queue of messages in order of arrival: time, sequence number, client, message.
type MessageQueue<T> = VecDeque<(u64, u64, ClientNumber, T)>;

/// All future events: commands on their way to the store, replies to clients, and timers.
#[derive(Debug)]
pub(super) struct EventQueue<Command, Answer, Timer> {
    now: u64,
    planned: u64,
    to_store: MessageQueue<Command>,
    to_clients: MessageQueue<Answer>,
    /// Notifications that the server sends one after the other. A separate queue, since they are planned one by one.
    told: MessageQueue<Answer>,
    timers: BinaryHeap<Reverse<(u64, u64, ClientNumber, Timer)>>,
}

impl<Command, Answer, Timer: Ord> EventQueue<Command, Answer, Timer> {
    pub(super) fn starting_at(now: u64) -> Self {
        Self {
            now,
            planned: 0,
            to_store: MessageQueue::new(),
            to_clients: MessageQueue::new(),
            told: MessageQueue::new(),
            timers: BinaryHeap::new(),
        }
    }

    /// Nanoseconds.
    pub(super) const fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn send(&mut self, at: u64, client: ClientNumber, command: Command) {
        let order = self.order();
        put(&mut self.to_store, (at, order, client, command));
    }

    pub(super) fn answer(&mut self, at: u64, client: ClientNumber, answer: Answer) {
        let order = self.order();
        put(&mut self.to_clients, (at, order, client, answer));
    }

    pub(super) fn tell(&mut self, at: u64, client: ClientNumber, answer: Answer) {
        let order = self.order();
        put(&mut self.told, (at, order, client, answer));
    }

    pub(super) fn plan(&mut self, at: u64, client: ClientNumber, timer: Timer) {
        let order = self.order();
        self.timers.push(Reverse((at, order, client, timer)));
    }

    /// Advances to the next event.
    pub(super) fn next(
        &mut self,
    ) -> Option<(ClientNumber, ScheduledEvent<Command, Answer, Timer>)> {
        let fronts = [
            self.to_store.front().map(|front| (front.0, front.1)),
            self.to_clients.front().map(|front| (front.0, front.1)),
            self.told.front().map(|front| (front.0, front.1)),
            self.timers.peek().map(|Reverse(top)| (top.0, top.1)),
        ];
        let (first, from) = fronts
            .into_iter()
            .zip(0..)
            .filter_map(|(front, from)| front.map(|front| (front, from)))
            .min()?;
        self.now = first.0;
        match from {
            0 => {
                let (_, _, client, command) = self.to_store.pop_front()?;
                Some((client, ScheduledEvent::Arrives(command)))
            }
            1 | 2 => {
                let lane = if from == 1 {
                    &mut self.to_clients
                } else {
                    &mut self.told
                };
                let (_, _, client, answer) = lane.pop_front()?;
                Some((client, ScheduledEvent::Answered(answer)))
            }
            _ => {
                let Reverse((_, _, client, timer)) = self.timers.pop()?;
                Some((client, ScheduledEvent::Due(timer)))
            }
        }
    }

    fn order(&mut self) -> u64 {
        self.planned += 1;
        self.planned
    }
}

fn put<T>(lane: &mut MessageQueue<T>, message: (u64, u64, ClientNumber, T)) {
    debug_assert!(
        lane.back().is_none_or(|last| last.0 <= message.0),
        "a message would overtake another"
    );
    lane.push_back(message);
}
