//! The rungs, from the most obvious recipe to those that hold. A test compares each stated violation with the model's result.

mod quorum;
mod redlock;
mod rung;
mod set_ex;
mod set_px;
mod setnx;
mod timestamp;
mod wrapper;

pub use self::rung::{Comeback, Rung, RungBounds};

static ALL: [&Rung; 26] = [
    &setnx::DEL,
    &setnx::MULTI,
    &setnx::THEN_EXPIRE,
    &set_ex::DEL,
    &set_ex::GET_DEL,
    &timestamp::DEL_SETNX,
    &timestamp::SKEW,
    &timestamp::DELAYED,
    &timestamp::DEL,
    &timestamp::CHECK_DEL,
    &timestamp::NO_OWNER,
    &set_px::LUA,
    &set_px::STALE_WRITE,
    &set_px::LOST_UPDATE,
    &set_px::FENCED,
    &wrapper::ORPHAN,
    &redlock::PLAIN,
    &redlock::RESTART,
    &redlock::CLOCK_JUMP,
    &redlock::LATE_VALIDITY,
    &quorum::PLAIN,
    &quorum::RESTART,
    &quorum::CLOCK_JUMP,
    &quorum::NO_QUARANTINE,
    &quorum::EARLY_COUNTER,
    &quorum::NO_CERTIFICATE,
];

/// All rungs, from the lowest.
pub fn all() -> &'static [&'static Rung] {
    &ALL
}

/// The rung of this name.
pub fn find(name: &str) -> Option<&'static Rung> {
    all().iter().find(|rung| rung.name == name).copied()
}
