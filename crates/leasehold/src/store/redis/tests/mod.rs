//! Tests on real servers: the scripts agree with `leasehold_core` and with `docs/reference/protocol.md`.

mod against_core;
pub(super) mod vectors;
