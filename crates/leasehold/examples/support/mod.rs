//! Shared code of the examples: makes a client from `--url`, or one that needs no server.

use leasehold::{Client, Error};

/// Connects to the store after `--url`, or makes one in memory.
pub(crate) async fn client() -> Result<Client, Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        [] => Client::embedded(),
        ["--url", url] => Client::connect(url).await,
        _ => {
            eprintln!("usage: cargo run --example NAME [-- --url redis://127.0.0.1:6379/]");
            std::process::exit(64);
        }
    }
}

/// Starts a task.
#[allow(dead_code, reason = "not every example starts one")]
#[allow(clippy::disallowed_methods, reason = "the rule is for the library")]
pub(crate) fn spawn<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::spawn(work)
}
