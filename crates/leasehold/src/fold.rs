//! A fast hasher for the maps on the way of each lock.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Makes hashers with one random seed, which makes it hard to choose names that collide.
#[derive(Clone)]
pub(crate) struct Folding(u64);

/// Folds words by multiplication, as `wyhash` and `foldhash` do. For maps only: its numbers differ from process to process.
pub(crate) struct FoldHasher(u64);

/// An odd number without a pattern: the fraction of the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Default for Folding {
    fn default() -> Self {
        Self(RandomState::new().hash_one(FACTOR))
    }
}

impl BuildHasher for Folding {
    type Hasher = FoldHasher;

    fn build_hasher(&self) -> FoldHasher {
        FoldHasher(self.0)
    }
}

impl FoldHasher {
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    fn fold(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(FACTOR);
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

impl Hasher for FoldHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.fold(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        // At most seven: "a" is not "a\0".
        self.fold(u64::from_le_bytes(last) | (rest.len() as u64) << 56);
    }

    fn write_u8(&mut self, byte: u8) {
        self.fold(u64::from(byte) | 1 << 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_that_differ_a_little_have_distant_hashes() {
        let folding = Folding::default();
        let names = (0..20_000).map(|number| format!("orders:{number}"));
        let hashes: Vec<u64> = names.map(|name| folding.hash_one(name)).collect();
        assert_eq!(hashes.iter().collect::<HashSet<_>>().len(), hashes.len());
        // A map uses the upper and the lower bits.
        for part in [0, 57] {
            let mut counts = [0_u32; 128];
            for hash in &hashes {
                counts[usize::try_from(hash >> part & 127).unwrap()] += 1;
            }
            let most = counts.iter().max().unwrap();
            assert!(*most < 260, "{most} of 156 expected, in bits {part}");
        }
    }

    #[test]
    fn ends_and_zeros_count() {
        let folding = Folding::default();
        let texts = ["", "\0", "a", "a\0", "12345678", "12345678\0", "123456789"];
        let hashes: HashSet<u64> = texts.iter().map(|text| folding.hash_one(text)).collect();
        assert_eq!(hashes.len(), texts.len());
        assert_ne!(Folding::default().hash_one("a"), folding.hash_one("a"));
    }
}
