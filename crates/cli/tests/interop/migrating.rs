//! The roll-outs of `docs/migrating.md`, step by step, with old programs and `leasehold run` as processes. Each
//! story has the name of its section.

mod hosts;
mod redisson;
mod redlock;
mod rollout;
mod strings;

use crate::Tale;

/// The longest one first.
pub(crate) const STORIES: &[Tale] = &[
    ("migrating redlock-libraries", redlock::redlock_libraries),
    ("migrating setnx-and-expire", strings::setnx_and_expire),
    ("migrating set-nx-ex-and-del", strings::set_nx_ex_and_del),
    ("migrating shedlock", strings::shedlock),
    ("migrating redisson", redisson::redisson),
    ("migrating flock-and-cron", hosts::flock_and_cron),
];
