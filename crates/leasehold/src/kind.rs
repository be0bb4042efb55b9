//! The kinds of locks, as type parameters of [`Lock`](crate::Lock) and [`Lease`](crate::Lease).

use leasehold_core::Fence;

/// A kind of lock: [`Exclusive`], [`Shared`] or [`Slots`], or [`AnyKind`] where only the running program knows which.
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

/// Any of the other kinds: the leases of locks that [`Client::all`](crate::Client::all) takes together.
#[derive(Debug, Clone, Copy)]
pub enum AnyKind {}

/// A kind whose leases may have a fencing token: all but [`Slots`], where each slot has one of its own.
pub trait Fenced: Kind {
    /// What [`Lease::fence`](crate::Lease::fence) returns.
    type Fence;

    #[doc(hidden)]
    fn fence(fence: Option<Fence>) -> Self::Fence;
}

impl Fenced for Exclusive {
    type Fence = Fence;

    fn fence(fence: Option<Fence>) -> Fence {
        // A store draws one for each grant.
        fence.unwrap_or(Fence::new(0))
    }
}

impl Fenced for Shared {
    type Fence = Option<Fence>;

    fn fence(fence: Option<Fence>) -> Option<Fence> {
        fence
    }
}

impl Fenced for AnyKind {
    type Fence = Option<Fence>;

    fn fence(fence: Option<Fence>) -> Option<Fence> {
        fence
    }
}

impl Kind for Exclusive {}
impl Kind for Shared {}
impl Kind for Slots {}
impl Kind for AnyKind {}

pub(crate) mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Exclusive {}
    impl Sealed for super::Shared {}
    impl Sealed for super::Slots {}
    impl Sealed for super::AnyKind {}
}
