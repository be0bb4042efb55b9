//! Times in nanoseconds, at a resolution better than 1 %. The size is fixed, because a growing list would
//! disturb a million acquisitions a second.

const FINE: usize = 128;
const FINE_BITS: usize = 7;

#[derive(Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum: u128,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; FINE * (64 - FINE_BITS + 1)],
            total: 0,
            sum: 0,
            max: 0,
        }
    }
}

impl Histogram {
    pub fn add(&mut self, ns: u64) {
        self.counts[slot(ns)] += 1;
        self.total += 1;
        self.sum += u128::from(ns);
        self.max = self.max.max(ns);
    }

    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn max_us(&self) -> f64 {
        self.max as f64 / 1e3
    }

    pub fn mean_us(&self) -> f64 {
        self.sum as f64 / 1e3 / self.total.max(1) as f64
    }

    /// The quantile `p` in microseconds; 0 for an empty histogram.
    pub fn quantile_us(&self, p: f64) -> f64 {
        let wanted = (self.total.saturating_sub(1) as f64 * p).round() as u64;
        let mut seen = 0;
        for (slot, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen > wanted {
                return middle(slot).min(self.max) as f64 / 1e3;
            }
        }
        0.0
    }
}

/// Values below 128 have a slot each; each higher power of two has 128 slots.
fn slot(ns: u64) -> usize {
    let bits = 64 - ns.leading_zeros() as usize;
    let shift = bits.saturating_sub(FINE_BITS + 1);
    FINE * shift + (ns >> shift) as usize
}

fn middle(slot: usize) -> u64 {
    if slot < 2 * FINE {
        return slot as u64;
    }
    let shift = slot / FINE - 1;
    let lowest = ((slot - FINE * shift) as u64) << shift;
    lowest + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_within_one_percent() {
        for ns in
            (0..60).flat_map(|bit| [1_u64 << bit, (1 << bit) + (1 << bit) / 3, (2 << bit) - 1])
        {
            let back = middle(slot(ns));
            assert!(back.abs_diff(ns) * 100 <= ns, "{ns} came back as {back}");
        }
        assert!(slot(u64::MAX) < Histogram::default().counts.len());
    }

    #[test]
    fn quantiles_of_a_known_sample() {
        let mut histogram = Histogram::default();
        (1..=100).for_each(|us| histogram.add(us * 1000));
        assert!((histogram.quantile_us(0.5) - 50.0).abs() < 1.5);
        assert!((histogram.quantile_us(0.99) - 99.0).abs() < 1.5);
        assert!((histogram.quantile_us(1.0) - 100.0).abs() < 1.0);
        assert!((histogram.mean_us() - 50.5).abs() < 0.01);
    }
}
