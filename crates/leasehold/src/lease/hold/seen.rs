//! A lease as others see it, and how they wait for its end.

use std::pin::pin;

use leasehold_core::{HolderIdentity, HolderView};

use super::{Hold, LeaseEnd};
use crate::error::Lost;

impl Hold {
    /// What others here are told of it.
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
        // First, since what is over stays as it is (L3).
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
            // Listen first, or a change between the look and the wait would go unheard.
            changed.as_mut().enable();
            if let Some(seen) = look(self) {
                return seen;
            }
            changed.await;
        }
    }
}
