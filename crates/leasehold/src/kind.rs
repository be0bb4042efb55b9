//! The kinds of locks, as type parameters of [`Lock`](crate::Lock) and [`Lease`](crate::Lease).

/// A kind of lock: [`Exclusive`], [`Shared`] or [`Slots`].
pub trait Kind: sealed::Sealed + 'static {}

/// One holder at a time: a [`Mutex`](crate::Mutex), and the writer of a [`RwLock`](crate::RwLock).
#[derive(Debug, Clone, Copy)]
pub enum Exclusive {}

/// Readers beside each other: those of a [`RwLock`](crate::RwLock).
#[derive(Debug, Clone, Copy)]
pub enum Shared {}

/// A number of slots with one holder each: a [`Semaphore`](crate::Semaphore).
#[derive(Debug, Clone, Copy)]
pub enum Slots {}

impl Kind for Exclusive {}
impl Kind for Shared {}
impl Kind for Slots {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Exclusive {}
    impl Sealed for super::Shared {}
    impl Sealed for super::Slots {}
}
