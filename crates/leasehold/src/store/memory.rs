//! Locks in this process only: for tests, examples and programs of one process.

pub(crate) mod faults;
mod faulty;
mod store;

pub use self::store::Memory;
#[cfg(test)]
pub(crate) use self::store::MemoryStore;
