//! A lock of another program under the same name. Must never show more of its value than people look at.

/// How much of the value of another program is looked at, in bytes: it may have many megabytes, and no token of ours is as
/// long.
pub const VALUE_SHOWN: usize = 1_024;

/// As much of it as is looked at.
pub(crate) fn shown(value: &[u8]) -> Vec<u8> {
    value[..value.len().min(VALUE_SHOWN)].to_vec()
}

/// A lock taken by a program that does not speak this protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// The Redis type of the key.
    pub kind: String,
    /// The value, if a string. Others are told of its first [`VALUE_SHOWN`] bytes only.
    pub value: Vec<u8>,
    /// When it expires; `None` is never: we wait for it and do not take it.
    pub expires_at_ms: Option<u64>,
}
