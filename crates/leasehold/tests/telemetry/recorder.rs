//! A recorder of `metrics` that remembers every number.

#![allow(dead_code, reason = "each test crate uses its own part of it")]

use std::collections::BTreeMap;
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
}

impl Numbers {
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

    pub(crate) fn described(&self) -> BTreeMap<String, Description> {
        self.described.lock().expect("no panic").clone()
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
        Histogram::from_arc(self.series(key))
    }
}
