//! Views of a lease, and waiting for its end.

use std::pin::pin;

use leasehold_core::{HolderIdentity, HolderView};

use super::{Hold, LeaseEnd};
use crate::error::Lost;

impl Hold {
    /// The view of this holder for other tasks of this client.
    pub(crate) fn view(&self) -> HolderView {
        HolderView::new(
            HolderIdentity::Owner(self.owner.clone()),
            Some(self.fence),
            Some(self.clock.now().since(self.since)),
            Some(self.valid_until().since(self.clock.now())),
        )
    }

    /// How it ended, if it has.
    pub(crate) fn end(&self) -> Option<LeaseEnd> {
        // First, since an end is final (L3).
        let is_over = self.is_over();
        let lost = self.loss().map(LeaseEnd::Lost);
        lost.or(is_over.then_some(LeaseEnd::Released))
    }

    /// Waits until it is lost.
    pub(crate) async fn wait_lost(&self) -> Lost {
        self.wait_for(Self::loss).await
    }

    /// Waits until it is lost or given back.
    pub(crate) async fn wait_end(&self) -> LeaseEnd {
        self.wait_for(Self::end).await
    }

    async fn wait_for<T>(&self, look: impl Fn(&Self) -> Option<T>) -> T {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Listen first, or a change between the check and the wait would be missed.
            changed.as_mut().enable();
            if let Some(seen) = look(self) {
                return seen;
            }
            changed.await;
        }
    }
}
