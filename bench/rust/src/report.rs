//! The output of a driver.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use crate::args::Load;
use crate::histogram::Histogram;
use crate::section::Shared;

/// One acquisition of the log.
pub(crate) struct Record {
    pub(crate) requested: u64,
    pub(crate) acquired: u64,
    pub(crate) release_called: u64,
    pub(crate) release_returned: u64,
}

/// The results of one worker.
#[derive(Default)]
pub(crate) struct Tally {
    /// Time in acquire and in release together, of cycles that ended in the window.
    pair: Histogram,
    wait: Histogram,
    log: Vec<Record>,
    pub(crate) errors: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, record: Record, end: u64, logged: bool) {
        let wait = record.acquired - record.requested;
        if record.release_returned <= end {
            self.pair
                .add(wait + record.release_returned - record.release_called);
            self.wait.add(wait);
        }
        if logged {
            self.log.push(record);
        }
    }
}

/// One line `request acquired release_called release_returned worker` per acquisition.
pub(crate) fn write_log(load: &Load, tallies: &[Tally]) {
    let Some(path) = &load.log else { return };
    let mut text = String::new();
    for (worker, tally) in tallies.iter().enumerate() {
        for Record {
            requested,
            acquired,
            release_called,
            release_returned,
        } in &tally.log
        {
            let line = writeln!(
                text,
                "{requested} {acquired} {release_called} {release_returned} {worker}"
            );
            line.expect("a String takes it");
        }
    }
    std::fs::write(path, text).expect("the log can be written");
}

/// The line of JSON that the benchmark reads.
pub(crate) fn print(load: &Load, tallies: &[Tally], shared: &Shared) {
    let (mut pair, mut wait) = (Histogram::default(), Histogram::default());
    for tally in tallies {
        pair.merge(&tally.pair);
        wait.merge(&tally.wait);
    }
    let turns = || tallies.iter().map(|tally| tally.pair.total());
    println!(
        "{{\"ops\":{},\"secs\":{},\"pair_p50_us\":{:.2},\"pair_p99_us\":{:.2},\"acq_p50_us\":{:.2},\"acq_p99_us\":{:.2},\
         \"acq_mean_us\":{:.2},\"acq_max_us\":{:.2},\"changes\":{},\"violations\":{},\"errors\":{},\"min_worker\":{},\
         \"max_worker\":{}}}",
        pair.total(),
        load.time.as_secs_f64(),
        pair.quantile_us(0.5),
        pair.quantile_us(0.99),
        wait.quantile_us(0.5),
        wait.quantile_us(0.99),
        wait.mean_us(),
        wait.max_us(),
        shared.changes.load(Ordering::SeqCst),
        shared.violations.load(Ordering::SeqCst),
        tallies.iter().map(|tally| tally.errors).sum::<u64>(),
        turns().min().unwrap_or(0),
        turns().max().unwrap_or(0),
    );
}

/// A part of the output of a program other than a driver.
pub struct Part<'a>(pub &'a str);

impl Part<'_> {
    /// Prints one figure as a JSON line.
    pub fn figure(&self, metric: &str, value: f64) {
        let part = self.0;
        println!("{{\"part\":\"{part}\",\"metric\":\"{metric}\",\"value\":{value:.3}}}");
    }

    /// Prints the median and the 99th percentile of times with this name.
    pub fn quantiles(&self, name: &str, times: &Histogram) {
        self.figure(&format!("{name}_p50_us"), times.quantile_us(0.5));
        self.figure(&format!("{name}_p99_us"), times.quantile_us(0.99));
    }
}
