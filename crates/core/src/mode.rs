//! The modes in which a lock is asked for, by name. Must never say who is admitted beside whom: that is `kind`.

/// What a request asks for, which decides beside whom it is admitted. A store names each mode that there is, so that one which it does
/// not know is refused when it is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Alone: the mode of a mutex. The only mode that has a fence.
    Exclusive,
}
