//! Requests that are no steps: they pass by the inbox, over the present connection. It must never forget that they are under way,
//! for then nobody watches who runs that connection.

use std::time::Duration;

use super::Inbox;

/// How many are under way.
#[derive(Debug, Default)]
pub(super) struct Others {
    all: usize,
    /// Of them, those that are not sent again: what came of one whose connection is given up, nobody knows.
    once: usize,
}

impl Others {
    pub(super) const fn any(&self) -> bool {
        self.all > 0
    }

    /// Whether there are some, and none that is sent again.
    pub(super) const fn only_once(&self) -> bool {
        self.once > 0 && self.once == self.all
    }
}

/// One of them, under way until this is dropped.
pub(in crate::store::redis) struct Other<'a> {
    inbox: &'a Inbox,
    once: bool,
}

impl Inbox {
    /// A request that is no step is under way, and is `once` only sent: somebody has to watch the runner.
    pub(in crate::store::redis) fn other(&self, once: bool) -> Other<'_> {
        let mut inner = self.lock();
        inner.others.all += 1;
        inner.others.once += usize::from(once);
        if inner.watch.begin(Duration::MAX) {
            self.alarm.notify_one();
        }
        Other { inbox: self, once }
    }
}

impl Drop for Other<'_> {
    fn drop(&mut self) {
        let others = &mut self.inbox.lock().others;
        others.all -= 1;
        others.once -= usize::from(self.once);
    }
}
