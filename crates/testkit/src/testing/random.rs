//! Random numbers for the simulation of a quorum in core: its weaker rules fail in histories of this sequence. Other tests use `fastrand`.

/// Random numbers from a seed (`SplitMix64`): one seed is one sequence, on every machine.
#[derive(Debug, Clone)]
pub struct Rng(u64);

// `inline`, since tests by the hundred thousand are compiled with optimisation, and this crate is not.
impl Rng {
    /// The sequence of this seed.
    #[inline]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[inline]
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// The index of an element, of so many.
    #[inline]
    pub fn index(&mut self, count: usize) -> usize {
        let at = self.below(count as u64);
        usize::try_from(at).expect("it is below a `usize`")
    }

    /// True once in `n` times.
    #[inline]
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of these.
    #[inline]
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known seeds are histories that had a fault once.
    #[test]
    fn a_seed_stays_the_same_sequence() {
        assert_eq!(Rng::new(0).next(), 0xe220_a839_7b1d_cdaf);
    }
}
