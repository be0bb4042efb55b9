//! The numbers of this process, in the text form of Prometheus.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

/// The upper bounds of the buckets of all times, in seconds.
const BUCKETS: [f64; 9] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 15.0, 120.0, 3600.0];

/// How often the recorder sums up what was observed.
const UPKEEP: Duration = Duration::from_secs(5);

/// The recorder of this process, and the route `/metrics`.
#[derive(Debug, Clone)]
pub struct Metrics(PrometheusHandle);

impl Metrics {
    /// Installs the recorder for the whole process. A client that is built before has no numbers.
    ///
    /// # Errors
    /// The text of the exporter, if the process has a recorder already.
    pub fn install() -> Result<Self, String> {
        let installed = builder().and_then(PrometheusBuilder::install_recorder);
        installed.map(Self).map_err(|error| error.to_string())
    }

    /// Sums up what was observed, every 5 s, and never ends: run it beside the server. Without it, each observation takes memory until the
    /// next request for `/metrics`.
    pub async fn upkeep(&self) -> Infallible {
        loop {
            tokio::time::sleep(UPKEEP).await;
            self.0.run_upkeep();
        }
    }

    /// The route `/metrics`.
    pub fn routes(&self) -> Router {
        Router::new()
            .route("/metrics", get(numbers))
            .with_state(self.clone())
    }
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    let times = Matcher::Suffix("_seconds".to_owned());
    PrometheusBuilder::new().set_buckets_for_metric(times, &BUCKETS)
}

async fn numbers(State(Metrics(handle)): State<Metrics>) -> impl IntoResponse {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(CONTENT_TYPE, kind)], handle.render())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;

    use super::*;

    /// The memory of this process, in MiB.
    fn memory() -> u64 {
        let status = fs::read_to_string("/proc/self/status").expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        number.expect("a size in KiB") / 1024
    }

    /// 5,000,000 observations would take 120 MiB.
    #[tokio::test(start_paused = true)]
    async fn numbers_that_are_not_read_take_no_memory() {
        let recorder = builder().unwrap().build_recorder();
        let numbers = Metrics(recorder.handle());
        let observed = metrics::with_local_recorder(&recorder, || metrics::histogram!("x_seconds"));
        let before = memory();
        let observing = async {
            for _ in 0..50 {
                for _ in 0..100_000 {
                    observed.record(1.0);
                }
                tokio::time::sleep(2 * UPKEEP).await;
            }
        };
        tokio::select! {
            _ = numbers.upkeep() => {}
            () = observing => {}
        }
        let grown = memory().saturating_sub(before);
        assert!(grown < 60, "{grown} MiB");
    }
}
