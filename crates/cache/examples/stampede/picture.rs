//! Draws the renderings over time, and the durations of the reads.

use crate::site::{FRESH, RENDERING};
use crate::{PROCESSES, TICK};

/// The results of one half.
pub(crate) struct Act {
    /// The renderings that began in each tick.
    pub(crate) by_tick: Vec<u64>,
    /// The durations of the reads, in ascending order.
    pub(crate) took_us: Vec<u64>,
}

const BARS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The length of the longest bar for a duration.
const WIDTH: u64 = 40;

/// After so many ticks without a rendering, the next rendering belongs to another expiry.
const APART: usize = 3;

impl Act {
    fn renders(&self) -> u64 {
        self.by_tick.iter().sum()
    }

    /// The number of bursts of renderings. Each burst is one expiry of the page.
    fn expiries(&self) -> u64 {
        let mut quiet = APART;
        let mut bursts = 0;
        for renders in &self.by_tick {
            if *renders == 0 {
                quiet += 1;
                continue;
            }
            bursts += u64::from(quiet >= APART);
            quiet = 0;
        }
        bursts
    }

    /// The duration within which so many of a thousand reads ended.
    fn quantile_us(&self, per_mille: usize) -> u64 {
        let last = self.took_us.len().saturating_sub(1);
        self.took_us
            .get(last * per_mille / 1000)
            .copied()
            .unwrap_or_default()
    }

    fn over_time(&self, most: u64) -> String {
        let bar = |renders: &u64| {
            let height = if *renders == 0 {
                0
            } else {
                1 + renders * 7 / most.max(1)
            };
            usize::try_from(height)
                .ok()
                .and_then(|height| BARS.get(height))
                .unwrap_or(&'█')
        };
        self.by_tick.iter().map(bar).collect()
    }
}

/// Draws both halves, one below the other.
pub(crate) fn draw(plain: &Act, guarded: &Act) -> String {
    let ticks = plain.by_tick.iter().chain(&guarded.by_tick);
    let most = ticks.max().copied().unwrap_or(1);
    let longest = plain.quantile_us(1000).max(guarded.quantile_us(1000));
    let mut lines = vec![format!(
        "A page that takes {RENDERING:?} to render and is fresh for {FRESH:?}, read through a shared cache by {PROCESSES} processes."
    )];
    for (name, act) in [("without the guard", plain), ("with the guard", guarded)] {
        let (count, expiries) = (act.renders(), act.expiries());
        let each = (count + expiries / 2) / expiries.max(1);
        let reads = act.took_us.len();
        lines.push(format!(
            "\n{name}: {count} renderings for {expiries} expiries, {each} for each; {reads} reads"
        ));
        lines.push(format!(
            "  {}  renderings each {TICK:?}",
            act.over_time(most)
        ));
        for (of, per_mille) in [("p50", 500), ("p90", 900), ("p99", 990)] {
            let took = act.quantile_us(per_mille);
            let bar = "█".repeat(usize::try_from(took * WIDTH / longest.max(1)).unwrap_or(0));
            let (whole, tenths) = (took / 1000, took % 1000 / 100);
            lines.push(format!("  {of} {whole:>5}.{tenths} ms  ▏{bar}"));
        }
    }
    lines.join("\n")
}
