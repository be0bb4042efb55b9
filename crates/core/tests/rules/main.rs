//! The invariants of `leasehold-core`, after every step of random sequences, with silent waiters, clients whose process dies,
//! and a wall clock that steps back. The numbers are those of the crate's documentation.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod believed;
mod clients;
mod events;
mod grants;
mod line;
mod readers;
mod run;
mod slots;
mod stage;
mod story;

use std::time::Duration;

use leasehold_core::{Block, Counter, Mode, Reply, UnknownPresence};
use proptest::prelude::*;

use self::events::{Ask, Event, OWNERS, events};
use self::run::{Run, micros};

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_invariants_hold_after_every_step(events in events(120)) {
        let mut run = Run::new();
        for event in events {
            run.happens(event)?;
        }
        // A name that is used once costs no memory in the end, whatever its last state was.
        run.now.clock_us += micros(Duration::from_secs(24 * 60 * 60));
        run.world.sweep(run.now);
        prop_assert_eq!(run.world.names().count(), 0);
    }

    /// A sweep has no effect on grants. It forgets silent waiters only if all are silent, so the next step grants to the same
    /// owner. Only the reported queue length and the number of fences may differ.
    #[test]
    fn a_sweep_changes_no_grant(mut events in events(60)) {
        let mut run = Run::new();
        let ask = events.pop();
        for event in events {
            run.happens(event)?;
        }
        if let Some(Event::Ask(ask, who)) = ask && !matches!(ask, Ask::Inspect) {
            let step = run.step(ask, run.owners[who].clone());
            let mut swept = run.world.clone();
            swept.sweep(run.now);
            let [with, without] = [&mut swept, &mut run.world].map(|world| {
                let mut outcome = world.apply(run.now, &run.name, &step, &run.clients);
                let mut state = world.get(&run.name).cloned().unwrap_or_default();
                if let Reply::Held(held) = &mut outcome.reply {
                    (held.queued, held.block) = (0, Block::ONE);
                    for holder in &mut state.holders {
                        holder.fences.block = Block::ONE;
                    }
                }
                (outcome, state.holders)
            });
            prop_assert_eq!(with, without);
        }
    }

    /// C2 when the counter is lost: the wall clock keeps fences rising if it has passed the last one.
    #[test]
    fn fences_rise_past_a_loss(grants in 1..20_usize, later in 1..1_000_000_u64) {
        let mut run = Run::new();
        let mut last = None;
        for at in 0..grants {
            let step = run.step(Ask::Acquire(Mode::Exclusive, 10, 1, None), run.owners[at % OWNERS].clone());
            let Reply::Held(held) = run.world.apply(run.now, &run.name, &step, &UnknownPresence).reply else { unreachable!() };
            prop_assert!(held.fence > last, "C2");
            last = held.fence;
            run.world.entry(&run.name).holders.clear();
        }
        run.world.counter = Counter::default();
        run.now.wall_us = last.unwrap().get() + later;
        let step = run.step(Ask::Acquire(Mode::Exclusive, 10, 1, None), run.owners[0].clone());
        let Reply::Held(held) = run.world.apply(run.now, &run.name, &step, &UnknownPresence).reply else { unreachable!() };
        prop_assert!(held.fence > last, "C2");
    }
}
