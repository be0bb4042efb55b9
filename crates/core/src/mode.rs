//! The modes of a lock request. Which modes are compatible is decided in `kind`.

/// The mode of a request, which decides beside which holders it is admitted. A store matches every mode by name, so a mode
/// that it does not support is refused at compile time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Exclusive: the mode of a mutex. The only mode that has a fence.
    Exclusive,
}
