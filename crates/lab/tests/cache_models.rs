//! Model checks of the cache rules: sound rules hold in every state, and each broken rule is found by the property that it
//! violates. Each model must reach its situations.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[macro_use]
mod common;

use std::time::Duration;

use leasehold_core::Now;
use leasehold_core::cache::{CommitOutcome, EntryState, Outcome, Reply, Step, Version};
use leasehold_lab::cache::{ApplyEntry, check_one, names};
use leasehold_lab::rules::{self, Bounds};

/// Every rule holds in every state of a model, which reaches its situations.
#[track_caller]
fn holds_in(model: &str) {
    let found = check_one(Bounds::Ci, model, EntryState::apply).unwrap();
    common::holds(found, 10, (500, 10));
}

models! {
    every_rule_holds_within_the_bounds_of holds_in {
        cache "cache"
        invalidation "cache invalidation"
        early_refresh "cache early refresh"
        failing_source "cache failing source"
        crash "cache crash"
        lost_reply "cache lost reply"
        delayed_command "cache delayed command"
        eviction "cache eviction"
        clock_set_back "cache clock set back"
    }
}

#[test]
fn every_model_has_a_test_and_a_name_of_its_own() {
    assert_eq!(names(Bounds::Ci), TESTED);
    let locks = rules::names(Bounds::Ci);
    assert!(TESTED.iter().all(|name| !locks.contains(name)));
}

#[track_caller]
fn finds(rule: &str, model: &str, apply: ApplyEntry) {
    common::finds(check_one(Bounds::Ci, model, apply).unwrap(), rule);
}

#[test]
fn k1_a_second_loader_is_found() {
    finds("K1", "cache", |entry, now, step| {
        let outcome = entry.apply(now, step);
        if !matches!(outcome.reply, Reply::Busy { .. }) {
            return outcome;
        }
        entry.control.as_mut().unwrap().loader = None;
        entry.apply(now, step)
    });
}

#[test]
fn k1_an_ended_lease_that_is_renewed_is_found() {
    finds("K1", "cache", |entry, now, step| {
        let mut outcome = entry.apply(now, step);
        if matches!(step, Step::Renew { .. }) {
            outcome.reply = Reply::Renewed;
        }
        outcome
    });
}

#[test]
fn k1b_a_back_off_that_an_invalidation_ends_is_found() {
    finds("K1b", "cache failing source", |entry, now, step| {
        let outcome = entry.apply(now, step);
        if let (Step::Invalidate { .. }, Some(control)) = (step, &mut entry.control) {
            control.back_off = None;
        }
        outcome
    });
}

/// An earlier version of the rule: the load had ended before the other one failed.
#[test]
fn k1b_a_back_off_that_a_repeated_commit_ends_is_found() {
    finds("K1b", "cache lost reply", |entry, now, step| {
        let stored = entry.value.as_ref().map(|(value, _)| value.header.version);
        let outcome = entry.apply(now, step);
        if let (Step::Commit(commit), Some(control)) = (step, &mut entry.control)
            && stored == Some(commit.version)
        {
            control.back_off = None;
        }
        outcome
    });
}

#[test]
fn k2_numbers_that_begin_anew_are_found() {
    finds("K2", "cache eviction", |entry, now, step| {
        let begun = Now { wall_us: 1, ..now };
        entry.apply(begun, step)
    });
}

#[test]
fn k2_an_invalidation_that_only_deletes_is_found() {
    finds("K2", "cache invalidation", |entry, now, step| {
        if !matches!(step, Step::Invalidate { .. }) {
            return entry.apply(now, step);
        }
        entry.value = None;
        Outcome {
            reply: Reply::Invalidated,
            wakes: Vec::new(),
        }
    });
}

/// A commit that ignores the epoch.
fn no_epoch(entry: &mut EntryState, now: Now, step: &Step) -> Outcome {
    let epoch = entry.control.as_ref().map(|control| control.epoch);
    if let (Step::Commit(_), Some(control)) = (step, &mut entry.control) {
        control.epoch = Version::default();
    }
    let outcome = entry.apply(now, step);
    if let (Step::Commit(_), Some(control), Some(epoch)) = (step, &mut entry.control, epoch) {
        control.epoch = epoch;
    }
    outcome
}

#[test]
fn k3_a_commit_that_looks_at_no_epoch_is_found() {
    finds("K3", "cache invalidation", no_epoch);
    finds("K3", "cache eviction", no_epoch);
}

/// A commit that checks the epoch only, also under a number that the control never gave out.
fn any_number(entry: &mut EntryState, now: Now, step: &Step) -> Outcome {
    let last = entry.control.as_ref().map(|control| control.last);
    if let (Step::Commit(commit), Some(control)) = (step, &mut entry.control) {
        control.last = control.last.max(commit.version);
    }
    let outcome = entry.apply(now, step);
    if let (Step::Commit(_), Some(control), Some(last)) = (step, &mut entry.control, last) {
        control.last = last;
    }
    outcome
}

/// An earlier version of the rule.
#[test]
fn number_of_lost_control_taken_for_current_is_found() {
    finds("K3", "cache clock set back", any_number);
    finds("K4", "cache clock set back", any_number);
}

#[test]
fn k3_a_commit_that_compares_tokens_is_found() {
    finds("K3", "cache delayed command", |entry, now, step| {
        let loader = entry.control.as_ref().and_then(|control| control.loader);
        if let (Step::Commit(commit), Some(loader)) = (step, loader)
            && loader.token == commit.token
        {
            let mut mine = commit.clone();
            mine.version = loader.version;
            return entry.apply(now, &Step::Commit(mine));
        }
        entry.apply(now, step)
    });
}

#[test]
fn k3_a_value_that_stays_fresh_when_invalidated_is_found() {
    finds("K3", "cache invalidation", |entry, now, step| {
        let value = entry.value.clone();
        let outcome = entry.apply(now, step);
        if let Step::Invalidate { remove: false } = step {
            entry.value = value;
        }
        outcome
    });
}

#[test]
fn k4_an_old_value_that_replaces_a_newer_one_is_found() {
    finds("K4", "cache", |entry, now, step| {
        if let (Step::Commit(commit), Some((value, _))) = (step, &entry.value)
            && value.header.version > commit.version
        {
            entry.value = None;
        }
        entry.apply(now, step)
    });
}

#[test]
fn k4b_a_slow_loader_that_never_fills_is_found() {
    finds("K4b", "cache", |entry, now, step| {
        entry.expire(now);
        let loader = entry.control.as_ref().and_then(|control| control.loader);
        match step {
            Step::Commit(commit) if loader.is_none_or(|mine| mine.token != commit.token) => {
                Outcome {
                    reply: Reply::Committed(CommitOutcome::Overtaken),
                    wakes: Vec::new(),
                }
            }
            _ => entry.apply(now, step),
        }
    });
}

#[test]
fn k5_a_waiter_that_is_not_told_is_found() {
    fn silent(entry: &mut EntryState, now: Now, step: &Step) -> Outcome {
        let mut outcome = entry.apply(now, step);
        outcome.wakes.clear();
        outcome
    }
    for model in ["cache", "cache invalidation", "cache failing source"] {
        finds("K5", model, silent);
    }
}

#[test]
fn k5_a_waiter_that_is_forgotten_is_found() {
    finds("K5", "cache", |entry, now, step| {
        let outcome = entry.apply(now, step);
        // A client that takes over begins a new list.
        if let (Reply::Load { .. }, Some(control)) = (&outcome.reply, &mut entry.control) {
            control.waiting.clear();
        }
        outcome
    });
}

#[test]
fn k5b_a_waiter_that_asks_too_late_is_found() {
    finds("K5b", "cache", |entry, now, step| {
        let mut outcome = entry.apply(now, step);
        if let Reply::Busy { poll_after, .. } = &mut outcome.reply {
            *poll_after = Duration::from_millis(400);
        }
        outcome
    });
}

#[test]
fn k6_a_repeat_that_is_answered_otherwise_is_found() {
    finds("K6", "cache", |entry, now, step| {
        if let (Step::Begin(begin), Some(control)) = (step, &mut entry.control) {
            control.loader.take_if(|mine| mine.token == begin.token);
        }
        entry.apply(now, step)
    });
}

#[test]
fn k7_a_value_without_an_end_is_found() {
    finds("K7", "cache", |entry, now, step| {
        let outcome = entry.apply(now, step);
        if let Some((_, until_ms)) = &mut entry.value {
            *until_ms = u64::MAX / 2;
        }
        outcome
    });
}

#[test]
fn a_model_that_is_not_there_is_refused() {
    let refused = check_one(Bounds::Ci, "queue", EntryState::apply).unwrap_err();
    assert!(refused.to_string().contains("cache eviction"), "{refused}");
}
