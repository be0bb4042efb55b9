//! An axum service whose provider takes one request of an account at a time. Any number of processes serve it.
//!
//! `LISTEN=127.0.0.1:3000 PROVIDER=127.0.0.1:4000 cargo run -p leasehold-examples --bin axum_by_key`

use std::env;
use std::io;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use leasehold::{Client, Fence, locked};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};

#[derive(Clone)]
struct Shop {
    locks: Client,
    provider: String,
}

/// Requests of one account wait here for each other, in all processes. If a client goes away, axum drops this future: the request leaves
/// the queue, or gives the lock to the next one.
///
/// A handler with a body extracts it as `Json<T>`, so that axum reads it before the request queues: while a part of the body is unread,
/// hyper does not see that the client has gone.
#[locked("accounts:{account}", wait = "30s", note = "charge", client = shop.locks, lease = lease)]
async fn charge(State(shop): State<Shop>, Path(account): Path<u64>) -> Result<String, Refused> {
    Ok(shop.ask_provider(account, lease.fence()).await?)
}

impl Shop {
    /// The provider gets the fence too, so that it can refuse a request that comes late.
    async fn ask_provider(&self, account: u64, fence: Fence) -> io::Result<String> {
        let mut provider = BufStream::new(TcpStream::connect(&self.provider).await?);
        provider
            .write_all(format!("{account} {fence}\n").as_bytes())
            .await?;
        provider.flush().await?;
        let mut answer = String::new();
        match provider.read_line(&mut answer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(answer),
        }
    }
}

enum Refused {
    Lock(leasehold::Error),
    Provider(io::Error),
}

impl From<leasehold::Error> for Refused {
    fn from(error: leasehold::Error) -> Self {
        Self::Lock(error)
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Provider(error)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self {
            // Other requests of this account took the whole time, and nothing was charged.
            Self::Lock(leasehold::Error::Timeout(_)) => {
                (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "10")]).into_response()
            }
            Self::Lock(error) => {
                eprintln!("{error}");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
            Self::Provider(error) => {
                eprintln!("the provider: {error}");
                StatusCode::BAD_GATEWAY.into_response()
            }
        }
    }
}

fn setting(name: &str, default: &str) -> String {
    env::var(name).unwrap_or_else(|_| default.to_owned())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shop = Shop {
        locks: Client::connect(&setting("REDIS_URL", "redis://127.0.0.1/")).await?,
        provider: setting("PROVIDER", "127.0.0.1:4000"),
    };
    let listener = TcpListener::bind(setting("LISTEN", "127.0.0.1:3000")).await?;
    println!("listening on {}", listener.local_addr()?);
    let service = Router::new()
        .route("/accounts/{account}/charge", post(charge))
        .with_state(shop);
    axum::serve(listener, service).await?;
    Ok(())
}
