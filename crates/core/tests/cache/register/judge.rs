//! The judge of a schedule. It knows the register's writes, the completed invalidations, and the replies of the cache. It does
//! not read the entry.

/// The value of the register: the number of its last write.
pub(super) type Written = u32;

#[derive(Debug, Default)]
pub(super) struct Judge {
    /// The register.
    pub(super) register: Written,
    /// All writes before this one were overwritten and then invalidated.
    valid_from: Written,
}

impl Judge {
    /// An invalidation was carried out by a writer that had seen the register at `written`.
    pub(super) fn invalidated(&mut self, written: Written) {
        self.valid_from = self.valid_from.max(written);
    }

    /// The cache says now that this value is fresh. The caller asked before now and can have seen only invalidations that were
    /// carried out before now, so this check is stricter than the promise.
    pub(super) fn fresh(&self, what: &str, value: Written) -> Result<(), String> {
        if value >= self.valid_from {
            return Ok(());
        }
        let valid_from = self.valid_from;
        Err(format!(
            "{what}: write {value} is said to be fresh; {valid_from} was written and invalidated since"
        ))
    }
}

/// The counts of events.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) fresh: u64,
    pub(super) waited: u64,
    pub(super) backed_off: u64,
    pub(super) invalidated_during_load: u64,
    pub(super) late_and_kept: u64,
    pub(super) stored_as_stale: u64,
    pub(super) overtaken: u64,
    pub(super) repeated_commits: u64,
    pub(super) second_loaders: u64,
    pub(super) loaded_an_old_value: u64,
    pub(super) losses_during_load: u64,
    pub(super) clock_steps_during_load: u64,
    pub(super) crashes_during_load: u64,
    pub(super) requests_lost: u64,
    pub(super) answers_lost: u64,
}

impl Seen {
    /// The count of the rarest event.
    pub(super) fn least(&self) -> u64 {
        // The pattern names every field, so that a new one does not compile until it is counted.
        let Self {
            fresh,
            waited,
            backed_off,
            invalidated_during_load,
            late_and_kept,
            stored_as_stale,
            overtaken,
            repeated_commits,
            second_loaders,
            loaded_an_old_value,
            losses_during_load,
            clock_steps_during_load,
            crashes_during_load,
            requests_lost,
            answers_lost,
        } = *self;
        [
            fresh,
            waited,
            backed_off,
            invalidated_during_load,
            late_and_kept,
            stored_as_stale,
            overtaken,
            repeated_commits,
            second_loaders,
            loaded_an_old_value,
            losses_during_load,
            clock_steps_during_load,
            crashes_during_load,
            requests_lost,
            answers_lost,
        ]
        .into_iter()
        .min()
        .unwrap_or_default()
    }
}

#[test]
fn a_value_from_before_an_invalidation_is_not_fresh() {
    let mut judge = Judge::default();
    judge.fresh("GET", 0).unwrap();
    judge.invalidated(2);
    judge.fresh("GET", 1).unwrap_err();
    judge.fresh("GET", 2).unwrap();
}
