//! What a client holds beside leases: it hears as well that the server was replaced. Must never be called for leases, which
//! have renewals.

use std::sync::{Arc, PoisonError, Weak};

use crate::clock::Moment;
use crate::error::Replaced;
use crate::sync::{Mutex, MutexGuard};

/// Something that is held by word of a server.
pub(crate) trait Doubtful: Send + Sync + 'static {
    /// Until when it may be relied on.
    fn valid_until(&self) -> Moment;

    /// The server was replaced, it is heard at `now`: it is doubtful, and asked for at once. Must return at once.
    fn replaced(&self, how: Replaced, now: Moment);
}

/// All that is held so.
#[derive(Default)]
pub(crate) struct Beside(Mutex<State>);

#[derive(Default)]
struct State {
    held: Vec<Weak<dyn Doubtful>>,
    /// When it was heard that the server was replaced, and how, the last time.
    replaced: Option<(Moment, Replaced)>,
}

impl Beside {
    /// Something more is held, as long as it lives: the server was asked for it at `asked_at`.
    pub(crate) fn add<T: Doubtful>(&self, held: &Arc<T>, asked_at: Moment) {
        let replaced = {
            let mut state = self.lock();
            if state.held.len() == state.held.capacity() {
                state.held.retain(|held| held.strong_count() > 0);
                // Room for as many again, so that most are added without a look at the others.
                let live = state.held.len();
                state.held.reserve(live + 1);
            }
            let held: Weak<T> = Arc::downgrade(held);
            state.held.push(held);
            state.replaced
        };
        if let Some((at, how)) = replaced
            && asked_at <= at
        {
            // Perhaps by word of the server of before.
            held.replaced(how, at);
        }
    }

    /// Tells all, the one that ends soonest first.
    pub(super) fn replaced(&self, how: Replaced, now: Moment) {
        let mut held: Vec<Arc<dyn Doubtful>> = {
            let mut state = self.lock();
            state.replaced = Some((now, how));
            state.held.iter().filter_map(Weak::upgrade).collect()
        };
        held.sort_by_key(|held| held.valid_until());
        for held in held {
            held.replaced(how, now);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A change is one assignment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
