//! The server: its routes under `/v1`, what guards them, and the connections.

mod answer;
mod api;
mod gateway;
mod guard;
mod leases;
mod locks;
mod metrics;
mod page;
mod server;
mod sessions;
mod tokens;

pub use answer::Refusal;
pub use api::LeaseApi;
pub use guard::{Guard, Token};
pub use metrics::Metrics;
pub use page::Page;
pub use server::{Address, Limits, Listener, Server};
