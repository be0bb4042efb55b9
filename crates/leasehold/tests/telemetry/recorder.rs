//! A recorder of `metrics` that remembers every number.

#![allow(dead_code, reason = "each test crate uses its own part of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use leasehold::{Client, ClientBuilder};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata,
    SharedString, Unit, set_default_local_recorder,
};

use crate::common::Place;

/// The recorded values of a series: their sum and their number.
#[derive(Debug, Default)]
pub(crate) struct Series(Mutex<(f64, u64)>);

impl Series {
    fn add(&self, value: f64) {
        let mut series = self.0.lock().expect("no panic");
        (series.0, series.1) = (series.0 + value, series.1 + 1);
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        self.add(f64::from(u32::try_from(value).expect("few")));
    }

    fn absolute(&self, _: u64) {
        unimplemented!("counts up only");
    }
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, _: f64) {
        unimplemented!("another client may count there too");
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.add(value);
    }
}

/// The description of a number: its unit and a text.
pub(crate) type Description = (Option<Unit>, String);

/// All series by name and labels, as Prometheus writes them: `a_total{b="c"}`.
#[derive(Clone, Default)]
pub(crate) struct Numbers {
    series: Arc<Mutex<BTreeMap<String, Arc<Series>>>>,
    described: Arc<Mutex<BTreeMap<String, Description>>>,
    /// Whether it panics at each measurement of a time.
    panics_at_times: bool,
}

struct NoTime;

impl HistogramFn for NoTime {
    fn record(&self, _: f64) {
        panic!("time")
    }
}

impl Numbers {
    pub(crate) fn that_panic_at_times() -> Self {
        Self {
            panics_at_times: true,
            ..Self::default()
        }
    }

    /// A client that records its numbers here.
    pub(crate) async fn client(&self, place: &Place, builder: ClientBuilder) -> Client {
        let _recording = set_default_local_recorder(self);
        place.connect(builder).await.expect("it works")
    }

    /// The sum and the number of values.
    #[track_caller]
    fn get(&self, series: &str) -> (f64, u64) {
        let all = self.series.lock().expect("no panic");
        let found = all
            .get(series)
            .unwrap_or_else(|| panic!("{series}: {all:#?}"));
        *found.0.lock().expect("no panic")
    }

    /// The value of a counter or gauge.
    #[track_caller]
    #[allow(clippy::cast_possible_truncation, reason = "small whole numbers")]
    pub(crate) fn sum(&self, series: &str) -> i64 {
        self.get(series).0.round() as i64
    }

    /// The number of recorded values.
    #[track_caller]
    pub(crate) fn count(&self, series: &str) -> u64 {
        self.get(series).1
    }

    /// The sum of the recorded seconds.
    #[track_caller]
    pub(crate) fn seconds(&self, series: &str) -> f64 {
        self.get(series).0
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.series
            .lock()
            .expect("no panic")
            .keys()
            .cloned()
            .collect()
    }

    /// Checks that these numbers are described, are zero, and are on the page with their labels.
    pub(crate) fn are_as_on_the_page(&self, is_one: impl Fn(&str) -> bool) {
        let described = self.described.lock().expect("no panic");
        let mut counted = BTreeMap::<String, BTreeSet<String>>::new();
        for series in self.all() {
            let (name, labels) = series.split_once('{').unwrap_or((&series, ""));
            assert_eq!(self.sum(&series), 0, "{series}");
            let labels = labels.split(',').filter_map(|label| label.split_once('='));
            let labels = labels.map(|(label, _)| label.to_owned());
            counted.entry(name.to_owned()).or_default().extend(labels);
        }
        assert!(described.keys().eq(counted.keys()), "{described:?}");
        for (name, (unit, text)) in &*described {
            let seconds = name.ends_with("_seconds");
            let expected = if seconds { Unit::Seconds } else { Unit::Count };
            assert_eq!(*unit, Some(expected), "{name}");
            assert!(!text.is_empty(), "{name}");
        }
        let page = include_str!("../../../../docs/reference/telemetry.md");
        let rows = page
            .lines()
            .filter(|line| line.starts_with("| `leasehold_"));
        let quoted = |cell: &str| -> Vec<String> {
            let parts = cell.split('`').skip(1).step_by(2);
            parts.map(str::to_owned).collect()
        };
        let on_page = rows.map(|row| {
            let cells: Vec<&str> = row.split('|').collect();
            let labels = quoted(cells[3]).into_iter().collect();
            (quoted(cells[1]).remove(0), labels)
        });
        let on_page: BTreeMap<_, _> = on_page.filter(|(name, _)| is_one(name)).collect();
        counted.retain(|name, _| is_one(name));
        assert_eq!(counted, on_page);
    }

    fn series(&self, key: &Key) -> Arc<Series> {
        let mut labels: Vec<String> = key
            .labels()
            .map(|label| format!("{}={:?}", label.key(), label.value()))
            .collect();
        labels.sort();
        let name = match &labels[..] {
            [] => key.name().to_owned(),
            labels => format!("{}{{{}}}", key.name(), labels.join(",")),
        };
        let mut all = self.series.lock().expect("no panic");
        all.entry(name).or_default().clone()
    }

    fn describe(&self, key: &KeyName, unit: Option<Unit>, text: &SharedString) {
        let mut described = self.described.lock().expect("no panic");
        described.insert(key.as_str().to_owned(), (unit, text.to_string()));
    }
}

impl metrics::Recorder for Numbers {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&key, unit, &text);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&key, unit, &text);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&key, unit, &text);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.series(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        if self.panics_at_times {
            return Histogram::from_arc(Arc::new(NoTime));
        }
        Histogram::from_arc(self.series(key))
    }
}
