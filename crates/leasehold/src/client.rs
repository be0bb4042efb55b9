//! One client of one store, and how it is made. Must never take a lock by itself, and never leave one behind when it is closed.

mod builder;
mod handle;

pub use self::builder::ClientBuilder;
pub use self::handle::Client;
