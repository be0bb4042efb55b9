//! No numbers, without the feature `metrics`.

use std::time::Duration;

use super::outcome::Outcome;
use crate::error::{LossCause, StoreErrorKind};

pub(super) const ON: bool = false;

pub(super) struct Meters;

#[derive(Clone)]
pub(super) struct Meter;

#[allow(
    clippy::unused_self,
    clippy::trivially_copy_pass_by_ref,
    clippy::needless_pass_by_value,
    reason = "what `meters.rs` has"
)]
impl Meters {
    pub(super) fn new(_: &[String]) -> Self {
        Self
    }

    pub(super) fn of(&self, _: Option<&str>) -> Meter {
        Meter
    }

    pub(super) fn failed(&self, _: StoreErrorKind) {}
}

#[allow(
    clippy::unused_self,
    clippy::trivially_copy_pass_by_ref,
    reason = "what `meters.rs` has"
)]
impl Meter {
    pub(super) fn asked(&self, _: Outcome, _: Duration) {}

    pub(super) fn begun(&self) {}

    pub(super) fn ended(&self, _: Duration) {}

    pub(super) fn lost(&self, _: &LossCause) {}

    pub(super) fn renewed(&self, _: Duration) {}
}
