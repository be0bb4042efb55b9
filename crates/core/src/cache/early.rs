//! Early refresh: renews a value in use before it expires, by a random choice of the readers.

use super::entry::Header;

/// The last part of the fresh time in which a value may be refreshed early: one in so many.
const WINDOW: u64 = 5;

impl Header {
    /// Whether a reader that finds the value fresh should refresh it already, decided by `random` from 0 to 1.
    ///
    /// This is `XFetch` (Vattani, Chierichetti, Lowenstein: "Optimal Probabilistic Cache Stampede Prevention", VLDB 2015). The
    /// longer a load takes, and the nearer the expiry, the likelier the refresh. `eagerness` is its beta: 1 by default, 0 for
    /// never. Refreshes begin only in the last fifth of the fresh time; with many readers, one of them would otherwise refresh
    /// all the time.
    pub fn is_due_early(&self, now_ms: u64, random: f64, eagerness: f64) -> bool {
        let left = self.soft_ms.saturating_sub(now_ms);
        let span = self.soft_ms.saturating_sub(self.stored_ms);
        if left > span / WINDOW || eagerness <= 0.0 {
            return false;
        }
        let draw = -random.clamp(f64::MIN_POSITIVE, 1.0).ln();
        float(self.load_ms) * eagerness * draw >= float(left)
    }
}

/// Milliseconds since 1970 are far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "a draw need not be exact")]
const fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use crate::cache::{Format, Header, Version};

    #[test]
    fn the_longer_the_load_and_the_nearer_the_end_the_likelier() {
        let header = Header {
            invalidated: false,
            version: Version::new(7),
            stored_ms: 10_000,
            soft_ms: 20_000,
            load_ms: 500,
            format: Format::Json,
        };
        // e^-2: two load times ahead.
        let random = 0.13;
        assert!(!header.is_due_early(18_900, random, 1.0));
        assert!(header.is_due_early(19_000, random, 1.0));
        assert!(!header.is_due_early(19_000, random, 0.0));
        assert!(header.is_due_early(18_000, random, 3.0));
        // Even with high eagerness, not before the last fifth.
        assert!(!header.is_due_early(17_999, 0.0, 100.0));
        assert!(header.is_due_early(18_000, 0.0, 100.0));
        assert!(header.is_due_early(20_000, 1.0, 1.0));
    }
}
