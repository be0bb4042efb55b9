//! One client of one store, and its builder.

mod builder;
mod connect;
mod handle;

pub use self::builder::ClientBuilder;
pub use self::handle::Client;
