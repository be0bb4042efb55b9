//! The numbers of this process, in the text form of Prometheus.

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// The upper bounds of the buckets of all times, in seconds.
const BUCKETS: [f64; 9] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 15.0, 120.0, 3600.0];

/// The recorder of this process, and the route `/metrics`.
#[derive(Debug, Clone)]
pub struct Metrics(PrometheusHandle);

impl Metrics {
    /// Installs the recorder for the whole process. A client that is built before has no numbers.
    ///
    /// # Errors
    /// The text of the exporter, if the process has a recorder already.
    pub fn install() -> Result<Self, String> {
        let times = Matcher::Suffix("_seconds".to_owned());
        let builder = PrometheusBuilder::new().set_buckets_for_metric(times, &BUCKETS);
        let installed = builder.and_then(PrometheusBuilder::install_recorder);
        installed.map(Self).map_err(|error| error.to_string())
    }

    /// The route `/metrics`.
    pub fn routes(&self) -> Router {
        Router::new()
            .route("/metrics", get(numbers))
            .with_state(self.clone())
    }
}

async fn numbers(State(Metrics(handle)): State<Metrics>) -> impl IntoResponse {
    // Without it, what was observed would pile up between two requests.
    handle.run_upkeep();
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(CONTENT_TYPE, kind)], handle.render())
}
