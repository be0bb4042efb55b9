//! The kinds of the locks in a storm, drawn from its seed: a third are mutexes, a third read/write locks, a third semaphores. A quorum has no
//! semaphores: half are mutexes there.

use fastrand::Rng;
use leasehold::{Mode, Slots};
use serde::{Deserialize, Serialize};

use super::schedule::take;

/// The kind of a lock, for all workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LockKind {
    Mutex,
    ReadWrite,
    /// With so many slots.
    Semaphore(u16),
}

impl LockKind {
    /// The kinds of so many locks, on a quorum or not.
    pub(super) fn mixed(seed: u64, locks: u64, on_quorum: bool) -> Vec<Self> {
        let mut rng = Rng::with_seed(seed);
        let mut kinds = Vec::new();
        while (kinds.len() as u64) < locks {
            let mut left = vec![
                Self::Mutex,
                Self::ReadWrite,
                Self::Semaphore(rng.u16(2..=4)),
            ];
            left.retain(|kind| !(on_quorum && matches!(kind, Self::Semaphore(_))));
            kinds.extend(std::iter::from_fn(|| take(&mut left, rng.u64(..))));
        }
        kinds.truncate(usize::try_from(locks).unwrap_or(usize::MAX));
        kinds
    }

    /// How a worker asks for such a lock: more readers than writers. Now and then it wants the whole semaphore, as a mutex of that name.
    pub(super) fn draw(self, rng: &mut Rng) -> Mode {
        match self {
            Self::ReadWrite if rng.u64(..4) > 0 => Mode::Shared,
            Self::Semaphore(slots) if rng.u64(..16) > 0 => {
                Slots::new(slots).map_or(Mode::Exclusive, Mode::Slot)
            }
            _ => Mode::Exclusive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_follow_from_the_seed_and_are_all_there() {
        for seed in 0..100 {
            for (on_quorum, each) in [(false, 2), (true, 3)] {
                let kinds = LockKind::mixed(seed, 6, on_quorum);
                assert_eq!(kinds, LockKind::mixed(seed, 6, on_quorum));
                for kind in [LockKind::Mutex, LockKind::ReadWrite] {
                    let count = kinds.iter().filter(|it| **it == kind).count();
                    assert_eq!(count, each, "seed {seed}: {kinds:?}");
                }
            }
        }
        assert_ne!(LockKind::mixed(1, 6, false), LockKind::mixed(2, 6, false));
        assert_eq!(LockKind::mixed(1, 4, false).len(), 4);
    }

    #[test]
    fn each_kind_is_asked_for_in_all_of_its_modes() {
        let modes = |kind: LockKind| {
            let mut rng = Rng::with_seed(1);
            let modes = (0..200).map(|_| kind.draw(&mut rng).to_string());
            modes.collect::<std::collections::BTreeSet<_>>()
        };
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!(modes(LockKind::Mutex), texts(&["exclusive"]));
        assert_eq!(modes(LockKind::ReadWrite), texts(&["exclusive", "shared"]));
        let semaphore = modes(LockKind::Semaphore(3));
        assert_eq!(semaphore, texts(&["exclusive", "slot/3"]));
    }
}
