//! Tests on real servers: the scripts do the same as `leasehold_core`, and as `docs/reference/protocol.md`.

mod against_core;
pub(super) mod vectors;
