//! A lock of another program under this name.

/// How many bytes of a foreign value are read. A foreign value may have megabytes; every token of this protocol is shorter.
pub const VALUE_SHOWN: usize = 1_024;

/// The part of `value` that others are shown.
pub(crate) fn shown(value: &[u8]) -> Vec<u8> {
    value[..value.len().min(VALUE_SHOWN)].to_vec()
}

/// A lock that was taken by a program that does not speak this protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// The Redis type of the key.
    pub kind: String,
    /// The value, if a string. Others see its first [`VALUE_SHOWN`] bytes only.
    pub value: Vec<u8>,
    /// When it expires; `None` means never: clients wait for it and do not take it.
    pub expires_at_ms: Option<u64>,
}
