//! Model checks of the lock rules: sound rules hold in every state, and each broken rule is found by the property that it
//! violates. Each model must reach its situations.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[macro_use]
mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::{
    Block, Fence, Held, Holder, LockName, Mode, Now, Outcome, Presence, Reply, Step, Waiter, World,
};
use leasehold_lab::rules::{Apply, Bounds, check_one, names};

/// Every rule holds in every state of a model, which reaches its situations.
#[track_caller]
fn holds_in(model: &str) {
    let found = check_one(Bounds::Ci, model, World::apply).unwrap();
    common::holds(found, 14, (300, 10));
}

models! {
    every_rule_holds_within_the_bounds_of holds_in {
        mutex "mutex"
        queue "queue"
        grant_and_claim "grant and claim"
        lost_wake "lost wake"
        lost_reply "lost reply"
        cancel "cancel"
        crash "crash"
        crash_that_the_store_sees "crash that the store sees"
        connection_cut "connection cut while waiting"
        pause_and_expiry "pause and expiry"
        operator_break "break"
        at_least_hold "at least hold"
        foreign_program "foreign program"
        lost_counter "lost counter"
        failover "failover"
        readers_and_a_writer "readers and a writer"
        crash_of_a_reader "crash of a reader"
        late_wakes_to_readers "late wakes to readers"
        break_of_a_phase "break of a phase"
        readers_cut_off "readers cut off while a writer waits"
        two_slots_and_one "two slots and one"
        slots_and_a_mutex "slots and a mutex"
        break_of_a_slot "break of a slot"
    }
    in_soak {
        delayed_command "delayed command"
        delayed_answer "delayed answer"
    }
}

#[test]
fn every_model_has_a_test() {
    let tested: BTreeSet<&str> = TESTED.iter().copied().collect();
    let all: BTreeSet<&str> = names(Bounds::Ci).into_iter().collect();
    assert_eq!(all, tested);
}

/// Rules that forget each step reach few situations.
#[test]
fn a_model_names_the_situations_that_it_does_not_reach() {
    fn forgets(
        world: &mut World,
        now: Now,
        name: &LockName,
        step: &Step,
        who: &dyn Presence,
    ) -> Outcome {
        World::apply(&mut world.clone(), now, name, step, who)
    }
    let sound = check_one(Bounds::Ci, "queue", World::apply).unwrap();
    let found = check_one(Bounds::Ci, "queue", forgets).unwrap();
    assert_eq!((sound.missed.len(), found.missed.is_empty()), (0, false));
}

#[track_caller]
fn finds(rule: &str, model: &str, rules: Apply) -> Vec<String> {
    common::finds(check_one(Bounds::Ci, model, rules).unwrap(), rule)
}

#[test]
fn r1_a_second_holder_is_found() {
    finds("R1", "mutex", |world, now, name, step, presence| {
        let outcome = world.apply(now, name, step, presence);
        if let (Step::Acquire { owner, .. }, Reply::Busy(_)) = (step, &outcome.reply) {
            let holders = &mut world.entry(name).holders;
            let mut second = holders[0].clone();
            second.owner = owner.clone();
            holders.push(second);
        }
        outcome
    });
}

/// Replies *held* to every request.
fn flattering(
    world: &mut World,
    now: Now,
    name: &LockName,
    step: &Step,
    presence: &dyn Presence,
) -> Outcome {
    let mut outcome = world.apply(now, name, step, presence);
    if let (Step::Acquire { .. }, Reply::Busy(_)) = (step, &outcome.reply) {
        let fences = world.get(name).unwrap().holders[0].fences;
        outcome.reply = Reply::Held(Held {
            fence: Some(fences.first),
            slot: None,
            block: fences.block,
            queued: 0,
        });
    }
    outcome
}

#[test]
fn r1b_two_believed_holders_are_found() {
    finds("R1b", "mutex", flattering);
}

#[test]
fn r9_a_belief_without_a_hold_is_found() {
    finds("R9", "mutex", flattering);
}

#[test]
fn r1c_a_fence_that_two_believe_to_have_is_found() {
    finds("R1c", "mutex", flattering);
}

#[test]
fn r2_a_fence_that_begins_anew_is_found() {
    finds("R2", "mutex", |world, now, name, step, presence| {
        let outcome = world.apply(now, name, step, presence);
        if let (Step::Release { .. }, Some(last)) = (step, &mut world.counter.0) {
            *last = Fence::new(last.get() - 1);
        }
        outcome
    });
}

#[test]
fn r2_a_block_of_which_the_first_alone_is_counted_is_found() {
    finds("R2", "lost counter", |world, now, name, step, presence| {
        let before = world.counter;
        let outcome = world.apply(now, name, step, presence);
        if world.counter != before {
            let holders = &world.get(name).unwrap().holders;
            world.counter.0 = holders.first().map(|holder| holder.fences.first);
        }
        outcome
    });
}

#[test]
fn r3_stranger_that_ends_a_hold_is_found() {
    finds("R3", "queue", |world, now, name, step, presence| {
        let outcome = world.apply(now, name, step, presence);
        if let (Step::Release { .. }, Reply::NotHeld(_)) = (step, &outcome.reply) {
            world.entry(name).holders.clear();
        }
        outcome
    });
}

#[test]
fn r3_stranger_that_extends_a_hold_is_found() {
    finds("R3", "queue", |world, now, name, step, presence| {
        let outcome = world.apply(now, name, step, presence);
        if let (Step::Extend { .. }, Reply::NotHeld(Some(_))) = (step, &outcome.reply) {
            world.entry(name).holders[0].expires_at_ms += 3_000;
        }
        outcome
    });
}

#[test]
fn r4_waiter_that_polls_too_late_is_found() {
    finds("R4", "queue", |world, now, name, step, presence| {
        let mut outcome = world.apply(now, name, step, presence);
        if let Reply::Busy(busy) = &mut outcome.reply {
            busy.poll_after = Duration::from_secs(15);
        }
        outcome
    });
}

#[test]
fn r5_a_grant_for_longer_than_a_claim_is_found() {
    finds("R5", "queue", |world, now, name, step, presence| {
        let outcome = world.apply(now, name, step, presence);
        if let [_] = outcome.wakes[..] {
            world.entry(name).holders[0].expires_at_ms += 3_000;
        }
        outcome
    });
}

#[test]
fn r6_overtaking_waiter_is_found() {
    finds("R6", "queue", |world, now, name, step, presence| {
        if matches!(step, Step::Release { .. }) {
            world.entry(name).queue.make_contiguous().reverse();
        }
        world.apply(now, name, step, presence)
    });
}

#[test]
fn r7_a_repeat_that_joins_again_is_found() {
    finds("R7", "queue", |world, now, name, step, presence| {
        let outcome = world.apply(now, name, step, presence);
        if let (Step::Acquire { .. }, Reply::Busy(_)) = (step, &outcome.reply) {
            let queue = &mut world.entry(name).queue;
            let again = queue.back().unwrap().clone();
            queue.push_back(again);
        }
        outcome
    });
}

#[test]
fn r8_a_free_lock_that_keeps_its_waiters_is_found() {
    finds("R8", "queue", |world, now, name, step, presence| {
        let queue = world
            .get(name)
            .map(|lock| lock.queue.clone())
            .unwrap_or_default();
        let mut outcome = world.apply(now, name, step, presence);
        if !outcome.wakes.is_empty() {
            outcome.wakes.clear();
            let lock = world.entry(name);
            lock.holders.clear();
            lock.queue = queue;
        }
        outcome
    });
}

#[test]
fn r10_an_answer_that_is_not_so_is_found() {
    finds("R10", "queue", |world, now, name, step, presence| {
        let mut outcome = world.apply(now, name, step, presence);
        if let (Step::Release { .. }, Reply::NotHeld(_)) = (step, &outcome.reply) {
            outcome.reply = Reply::Released;
        }
        outcome
    });
}

/// A client that holds by a grant other than the one it believes in, since the store was rolled back.
#[test]
fn r10_an_extension_under_the_fence_of_another_grant_is_found() {
    finds("R10", "failover", |world, now, name, step, presence| {
        let mut step = step.clone();
        if let Step::Extend { fence, .. } = &mut step {
            *fence = None;
        }
        world.apply(now, name, &step, presence)
    });
}

#[test]
fn r11_grant_without_wake_is_found() {
    finds("R11", "queue", |world, now, name, step, presence| {
        let mut outcome = world.apply(now, name, step, presence);
        outcome.wakes.clear();
        outcome
    });
}

#[test]
fn r11_holder_not_told_of_waiters_is_found() {
    finds("R11", "queue", |world, now, name, step, presence| {
        let mut outcome = world.apply(now, name, step, presence);
        outcome.wanted.clear();
        outcome
    });
}

#[test]
fn r11_waiter_not_told_it_is_first_is_found() {
    let not_told: Apply = |world, now, name, step, presence| {
        let mut outcome = world.apply(now, name, step, presence);
        outcome.first = None;
        outcome
    };
    finds("R11", "foreign program", not_told);
}

/// An earlier version of the rule for waiters that cannot be told.
#[test]
fn r6_waiter_that_loses_its_place_when_cut_off_is_found() {
    let drops: Apply = |world, now, name, step, presence| {
        let before = world.get(name).cloned().unwrap_or_default();
        let outcome = world.apply(now, name, step, presence);
        let lowered = |waiter: &Waiter| {
            let was = before.queue.iter().find(|was| was.owner == waiter.owner);
            was.is_some_and(|was| was.seen_until_ms > waiter.seen_until_ms)
        };
        world.entry(name).queue.retain(|waiter| !lowered(waiter));
        outcome
    };
    finds("R6", "connection cut while waiting", drops);
}

#[test]
fn r3_a_kept_lock_that_is_freed_at_once_is_found() {
    finds("R3", "at least hold", |world, now, name, step, presence| {
        let mut step = step.clone();
        if let Step::Release { keep, .. } = &mut step {
            *keep = None;
        }
        world.apply(now, name, &step, presence)
    });
}

#[test]
fn the_way_to_a_violation_is_the_shortest_and_can_be_read() {
    let trace = finds("R3", "queue", |world, now, name, step, presence| {
        let outcome = world.apply(now, name, step, presence);
        if let (Step::Extend { .. }, Reply::NotHeld(Some(_))) = (step, &outcome.reply) {
            world.entry(name).holders.clear();
        }
        outcome
    });
    assert_eq!(trace.len(), 4, "{trace:#?}");
    for (line, parts) in trace[1..].iter().zip([
        ["A Wait", "held, fence"],
        ["B Wait", "busy, 0 ahead"],
        ["B Extend", "not held"],
    ]) {
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    }
}

#[test]
fn r1_a_reader_beside_a_writer_is_found() {
    let rules: Apply = |world, now, name, step, presence| {
        let mut outcome = world.apply(now, name, step, presence);
        if let (Step::Acquire { mode, .. }, Reply::Busy(_)) = (step, &outcome.reply)
            && *mode == Mode::Shared
            && world.get(name).unwrap().queue.len() == 1
        {
            outcome.reply = joined(world, name);
        }
        outcome
    };
    finds("R1", "readers and a writer", rules);
}

#[test]
fn r1_a_limit_of_the_holder_instead_of_the_request_is_found() {
    let rules: Apply = |world, now, name, step, presence| {
        let mut outcome = world.apply(now, name, step, presence);
        if let (Step::Acquire { .. }, Reply::Busy(_)) = (step, &outcome.reply) {
            let lock = world.get(name).unwrap();
            let [holder] = &lock.holders[..] else {
                return outcome;
            };
            let has_room = matches!(holder.mode, Mode::Slot(of) if of.get() > 1);
            if has_room && lock.queue.len() == 1 {
                outcome.reply = joined(world, name);
            }
        }
        outcome
    };
    finds("R1", "two slots and one", rules);
}

/// The last waiter joins the holders.
fn joined(world: &mut World, name: &LockName) -> Reply {
    let mut counter = world.counter;
    let lock = world.entry(name);
    let waiter = lock.queue.pop_back().unwrap();
    let fences = counter.draw(waiter.block, 0);
    let slot = matches!(waiter.mode, Mode::Slot(_)).then_some(2);
    lock.holders.push(Holder {
        vote: None,
        owner: waiter.owner,
        mode: waiter.mode,
        fences,
        slot,
        expires_at_ms: lock.holders[0].expires_at_ms,
        kept: false,
    });
    world.counter = counter;
    Reply::Held(Held {
        fence: Some(fences.first),
        slot,
        block: fences.block,
        queued: 0,
    })
}

#[test]
fn r2_a_reader_that_draws_a_fence_while_others_hold_is_found() {
    let rules: Apply = |world, now, name, step, presence| {
        let held = world.get(name).map_or(0, |lock| lock.holders.len());
        let mut outcome = world.apply(now, name, step, presence);
        let mut counter = world.counter;
        let holders = &mut world.entry(name).holders;
        if let (Step::Acquire { mode, .. }, Reply::Held(told)) = (step, &mut outcome.reply)
            && *mode == Mode::Shared
            && holders.len() == 2
            && held == 1
        {
            holders[1].fences = counter.draw(Block::ONE, now.wall_us);
            told.fence = Some(holders[1].fences.first);
            world.counter = counter;
        }
        outcome
    };
    finds("R2", "readers and a writer", rules);
}

#[test]
fn r3_one_expiry_for_all_readers_is_found() {
    let rules: Apply = |world, now, name, step, presence| {
        let outcome = world.apply(now, name, step, presence);
        let holders = &mut world.entry(name).holders;
        let last_ms = holders.iter().map(|holder| holder.expires_at_ms).max();
        for holder in holders {
            holder.expires_at_ms = last_ms.unwrap();
        }
        outcome
    };
    finds("R3", "readers and a writer", rules);
}

#[test]
fn r3_a_break_that_frees_all_slots_is_found() {
    let rules: Apply = |world, now, name, step, presence| {
        let outcome = world.apply(now, name, step, presence);
        if matches!(
            (step, &outcome.reply),
            (Step::Break { .. }, Reply::Released)
        ) {
            world.entry(name).holders.clear();
        }
        outcome
    };
    finds("R3", "break of a slot", rules);
}

#[test]
fn r6_a_late_reader_that_passes_a_waiting_writer_is_found() {
    let rules: Apply = |world, now, name, step, presence| {
        let lock = world.entry(name);
        let reads = matches!(step, Step::Acquire { mode, .. } if *mode == Mode::Shared);
        if reads
            && lock
                .queue
                .front()
                .is_some_and(|it| it.mode == Mode::Exclusive)
        {
            let writer = lock.queue.pop_front();
            let outcome = world.apply(now, name, step, presence);
            world.entry(name).queue.extend(writer);
            return outcome;
        }
        world.apply(now, name, step, presence)
    };
    finds("R6", "readers and a writer", rules);
}

#[test]
fn r8_a_reader_that_waits_behind_readers_is_found() {
    let rules: Apply = |world, now, name, step, presence| {
        let before = world.get(name).cloned().unwrap_or_default();
        let mut outcome = world.apply(now, name, step, presence);
        // The first of them alone enters.
        if outcome.wakes.len() > 1 {
            let late = outcome.wakes.pop().unwrap().owner;
            let lock = world.entry(name);
            lock.holders.retain(|holder| holder.owner != late);
            let mut queue = before.queue.into_iter();
            lock.queue.extend(queue.find(|waiter| waiter.owner == late));
        }
        outcome
    };
    finds("R8", "readers and a writer", rules);
}

/// An earlier version of the rule of a break: it granted before it broke.
#[test]
fn r6_a_break_that_ends_the_hold_of_who_just_joined_is_found() {
    let rules: Apply = |world, now, name, step, presence| {
        let mut early = Vec::new();
        if let Step::Break { .. } = step {
            let nobody = Step::Break {
                fence: Fence::new(1),
            };
            early = world.apply(now, name, &nobody, presence).wakes;
        }
        let mut outcome = world.apply(now, name, step, presence);
        outcome.wakes.splice(..0, early);
        outcome
    };
    finds("R6", "break of a phase", rules);
}

#[test]
fn r12_a_slot_that_is_used_while_it_is_held_is_found() {
    let rules: Apply = |world, now, name, step, presence| {
        let mut outcome = world.apply(now, name, step, presence);
        if let Reply::Held(held) = &mut outcome.reply
            && held.slot == Some(2)
        {
            held.slot = Some(1);
            for holder in &mut world.entry(name).holders {
                holder.slot = Some(1);
            }
        }
        outcome
    };
    finds("R12", "two slots and one", rules);
}

#[test]
fn r12_a_slot_that_is_not_the_smallest_is_found() {
    let rules: Apply = |world, now, name, step, presence| {
        let held = world.get(name).map_or(0, |lock| lock.holders.len());
        let mut outcome = world.apply(now, name, step, presence);
        if let Reply::Held(told) = &mut outcome.reply
            && held == 0
            && let [holder] = &mut world.entry(name).holders[..]
            && matches!(holder.mode, Mode::Slot(of) if of.get() == 2)
        {
            (told.slot, holder.slot) = (Some(2), Some(2));
        }
        outcome
    };
    finds("R12", "two slots and one", rules);
}

#[test]
fn r11_a_reader_that_is_not_asked_to_give_way_is_found() {
    let rules: Apply = |world, now, name, step, presence| {
        let mut outcome = world.apply(now, name, step, presence);
        outcome.wanted.truncate(1);
        outcome
    };
    finds("R11", "readers and a writer", rules);
}

#[test]
fn a_model_that_is_not_there_is_refused() {
    let refused = check_one(Bounds::Ci, "quorum", World::apply).unwrap_err();
    assert!(refused.to_string().contains("lost wake"), "{refused}");
}
