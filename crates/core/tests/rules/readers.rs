//! Readers and writers, one story each. A reader is a shared holder, a writer an exclusive one.

use std::time::Duration;

use leasehold_core::Mode::{Exclusive, Shared};
use leasehold_core::{
    ClientId, GRANTS_MOST, HolderIdentity, Owner, Presence, Reply, Snapshot, Step, Wait, Waiter,
};

use crate::events::slots;
use crate::stage::{Stage, acquire_in, ahead, behind, fence, owner, woken};

#[test]
fn readers_hold_together() {
    let mut stage = Stage::new();
    for who in ["ann", "bob", "cid"] {
        let Reply::Held(held) = stage.tries_in(Shared, who) else {
            panic!("{who} reads")
        };
        assert_eq!(held.slot, None);
    }
    assert_eq!(stage.holders(), ["ann", "bob", "cid"]);
    // Each has a hold of its own.
    stage.releases("bob", None);
    assert_eq!(stage.holders(), ["ann", "cid"]);
    assert!(matches!(stage.extends("bob", 30_000), Reply::NotHeld(_)));
}

#[test]
fn a_writer_waits_for_all_readers() {
    let mut stage = Stage::new();
    for who in ["ann", "bob"] {
        fence(&stage.tries_in(Shared, who));
    }
    assert_eq!(ahead(&stage.waits_in(Exclusive, "wes", 30_000).reply).0, 0);
    assert_eq!(woken(&stage.releases("ann", None)), Vec::<String>::new());
    assert_eq!(woken(&stage.releases("bob", None)), ["wes"]);
    assert_eq!(stage.holders(), ["wes"]);
    assert_eq!(behind(&stage.tries_in(Shared, "ann")).0, "wes");
}

#[test]
fn a_reader_does_not_pass_a_waiting_writer() {
    let mut stage = Stage::new();
    fence(&stage.tries_in(Shared, "ann"));
    stage.waits_in(Exclusive, "wes", 30_000);
    for waits in [false, true] {
        let wait = waits.then_some(Wait { listening: true });
        let asked = stage.step(&acquire_in(Shared, owner("bob"), 30_000, wait));
        assert_eq!(ahead(&asked.reply).0, 1);
    }
    // Who reads already goes on.
    fence(&stage.tries_in(Shared, "ann"));
    fence(&stage.extends("ann", 30_000));
    assert_eq!(woken(&stage.releases("ann", None)), ["wes"]);
    assert_eq!(woken(&stage.releases("wes", None)), ["bob"]);
}

#[test]
fn readers_behind_a_writer_enter_together() {
    let mut stage = Stage::new();
    fence(&stage.tries_in(Exclusive, "wes"));
    for who in ["ann", "bob"] {
        stage.waits_in(Shared, who, 30_000);
    }
    stage.waits_in(Exclusive, "zoe", 30_000);
    stage.waits_in(Shared, "cid", 30_000);
    let outcome = stage.releases("wes", None);
    assert_eq!(woken(&outcome), ["ann", "bob"]);
    assert_eq!(
        (stage.holders(), stage.queue()),
        (
            vec!["ann".into(), "bob".into()],
            vec!["zoe".into(), "cid".into()]
        )
    );
    // A writer that gives up lets in those behind it.
    assert_eq!(woken(&stage.releases("zoe", None)), ["cid"]);
    assert_eq!(stage.holders(), ["ann", "bob", "cid"]);
}

#[test]
fn a_reader_that_is_gone_delays_by_its_own_lease_only() {
    let mut stage = Stage::new();
    stage.waits_in(Shared, "gone", 5_000);
    stage.waits_in(Shared, "ann", 30_000);
    stage.waits_in(Exclusive, "wes", 30_000);
    for _ in 0..5 {
        stage.now_ms += 1_000;
        fence(&stage.extends("ann", 30_000));
    }
    // Its last millisecond counts.
    assert_eq!(stage.holders(), ["gone", "ann"]);
    assert_eq!(woken(&stage.releases("ann", None)), Vec::<String>::new());
    stage.now_ms += 1;
    fence(&stage.waits_in(Exclusive, "wes", 30_000).reply);
}

#[test]
fn a_waiting_writer_that_cannot_be_told_holds_up_no_reader() {
    let mut stage = Stage::new();
    fence(&stage.tries_in(Shared, "ann"));
    stage.waits_in(Exclusive, "wes", 30_000);
    stage.waits_in(Shared, "bob", 30_000);
    stage.deaf.0 = vec!["wes"];
    // The next step of anybody lets in the reader behind it.
    let outcome = stage.step(&Step::Extend {
        owner: owner("ann"),
        ttl: crate::run::ttl(30_000),
        fence: None,
    });
    assert_eq!(woken(&outcome), ["bob"]);
    fence(&stage.tries_in(Shared, "cid"));
    assert_eq!(stage.queue(), ["wes"]);
    // It keeps its place for two seconds, and is first if it is back by then.
    let mut late = Stage {
        world: stage.world.clone(),
        ..Stage::new()
    };
    stage.now_ms += 2_000;
    stage.deaf.0.clear();
    assert_eq!(ahead(&stage.waits_in(Exclusive, "wes", 30_000).reply).0, 0);
    assert_eq!(ahead(&stage.tries_in(Shared, "dan")).0, 1);
    late.now_ms += 2_001;
    fence(&late.tries_in(Shared, "dan"));
    assert_eq!(late.queue(), Vec::<String>::new());
}

/// A client that does not listen for wakes, or a store that cannot tell who does: its silence decides.
#[test]
fn a_silent_waiting_writer_holds_up_readers_for_its_grace() {
    let mut stage = Stage::new();
    fence(&stage.tries_in(Shared, "ann"));
    stage.waits_in(Exclusive, "wes", 30_000);
    stage.now_ms += 16_000;
    assert_eq!(ahead(&stage.tries_in(Shared, "bob")).0, 1);
    stage.now_ms += 1;
    fence(&stage.tries_in(Shared, "bob"));
    assert_eq!(stage.queue(), Vec::<String>::new());
}

#[test]
fn readers_of_a_phase_have_one_fence() {
    let mut stage = Stage::new();
    let first = fence(&stage.tries_in(Shared, "ann"));
    assert_eq!(fence(&stage.tries_in(Shared, "bob")), first);
    // The phase outlives the reader that began it, and its fence is drawn once.
    stage.releases("ann", None);
    stage.now_ms += 5_000;
    assert_eq!(fence(&stage.tries_in(Shared, "cid")), first);
    assert_eq!(fence(&stage.tries_in(Shared, "ann")), first);
    assert_eq!(stage.world.counter.0, Some(first));
    // The fence tells how long the phase lasts, and not since when a reader holds.
    let Reply::Seen(seen) = stage.step(&Step::Inspect).reply else {
        unreachable!()
    };
    for holder in seen.holders() {
        assert_eq!((holder.fence, holder.held_for), (Some(first), None));
        assert_eq!((holder.mode, holder.slot), (Shared, None));
    }
    assert_eq!(seen.holders().count(), 3);
}

#[test]
fn a_reader_draws_one_fence_however_many_it_asks_for() {
    let mut stage = Stage::new();
    let Step::Acquire {
        owner,
        mode,
        ttl,
        wait,
        ..
    } = acquire_in(Shared, owner("ann"), 30_000, None)
    else {
        unreachable!()
    };
    let block = leasehold_core::Block::MOST;
    let many = Step::Acquire {
        owner,
        mode,
        ttl,
        block,
        wait,
    };
    let Reply::Held(held) = stage.step(&many).reply else {
        unreachable!()
    };
    assert_eq!(held.block, leasehold_core::Block::ONE);
    assert_eq!(stage.world.counter.0, held.fence);
}

#[test]
fn fences_rise_from_phase_to_phase() {
    let mut stage = Stage::new();
    let mut last = None;
    for (mode, who) in [
        (Shared, "ann"),
        (Exclusive, "wes"),
        (Shared, "bob"),
        (Shared, "cid"),
        (slots(2), "dan"),
        (Shared, "eve"),
    ] {
        let held = fence(&stage.tries_in(mode, who));
        assert!(Some(held) > last, "{who}");
        last = Some(held);
        stage.releases(who, None);
    }
    // Also from one that ended by itself.
    fence(&stage.tries_in(Shared, "ann"));
    stage.now_ms += 30_001;
    assert!(Some(fence(&stage.tries_in(Shared, "bob"))) > last);
}

#[test]
fn a_break_ends_the_phase_of_its_fence() {
    let mut stage = Stage::new();
    let before = fence(&stage.tries_in(Exclusive, "zoe"));
    stage.releases("zoe", None);
    let phase = fence(&stage.tries_in(Shared, "ann"));
    fence(&stage.tries_in(Shared, "bob"));
    stage.waits_in(Exclusive, "wes", 30_000);
    assert!(matches!(stage.breaks(before), Reply::NotHeld(Some(_))));
    assert_eq!(stage.holders(), ["ann", "bob"]);
    let outcome = stage.step(&Step::Break { fence: phase });
    assert_eq!(
        (&outcome.reply, woken(&outcome)),
        (&Reply::Released, vec!["wes".into()])
    );
    for who in ["ann", "bob"] {
        let late = stage.extends_under(Some(phase), who, 30_000);
        assert!(matches!(late, Reply::NotHeld(Some(_))), "{who}");
    }
    assert!(matches!(stage.breaks(phase), Reply::NotHeld(Some(_))));
}

/// The operator has not seen it, and it would be told of a hold that has ended.
#[test]
fn a_break_does_not_end_the_hold_of_a_reader_that_it_lets_in() {
    let mut stage = Stage::new();
    let phase = fence(&stage.tries_in(Shared, "ann"));
    stage.waits_in(Exclusive, "wes", 30_000);
    stage.now_ms += 15_000;
    stage.waits_in(Shared, "bob", 30_000);
    // The writer is silent, so this step lets in the reader behind it.
    stage.now_ms += 1_001;
    let outcome = stage.step(&Step::Break { fence: phase });
    assert_eq!(
        (&outcome.reply, woken(&outcome)),
        (&Reply::Released, vec!["bob".into()])
    );
    assert_eq!(stage.holders(), ["bob"]);
    assert!(outcome.wakes[0].fence > Some(phase));
}

/// One of several that hold by one fence gives up its vote or its hold, and the others keep theirs.
#[test]
fn a_reader_gives_back_its_own_hold_only() {
    let mut stage = Stage::new();
    let phase = fence(&stage.tries_in(Shared, "ann"));
    for who in ["bob", "cid"] {
        fence(&stage.tries_in(Shared, who));
    }
    let back = Step::GiveBack {
        owner: owner("ann"),
        fence: phase,
    };
    assert_eq!(stage.step(&back).reply, Reply::Released);
    let release = Step::Release {
        owner: owner("bob"),
        keep: None,
        fence: Some(phase),
    };
    assert_eq!(stage.step(&release).reply, Reply::Released);
    assert_eq!(stage.holders(), ["cid"]);
}

#[test]
fn a_release_grants_64_of_200_readers_each_claim_the_next() {
    const READERS: usize = 200;
    let names: Vec<_> = (0..READERS).map(|number| format!("r{number:03}")).collect();
    let mut stage = Stage::new();
    fence(&stage.tries_in(Exclusive, "wes"));
    for who in &names {
        stage.waits_in(Shared, who, 30_000);
    }
    let released = stage.releases("wes", None);
    assert_eq!(woken(&released), names[..GRANTS_MOST]);
    let (last, others) = released.wakes.split_last().unwrap();
    assert!(others.iter().all(|wake| wake.fence.is_some()));
    assert_eq!(last.fence, None, "it claims at once, and lets in others");
    // Nobody passes those that remain.
    assert_eq!(ahead(&stage.tries_in(Shared, "new")).0, 136 - 64);
    assert_eq!(stage.holders(), names[..2 * GRANTS_MOST]);
    // A claim, and its repeat.
    let claim = Step::Extend {
        owner: owner("r000"),
        ttl: crate::run::ttl(30_000),
        fence: None,
    };
    assert_eq!(woken(&stage.step(&claim)), names[128..192]);
    let rest = stage.step(&claim);
    assert_eq!(woken(&rest), names[192..]);
    assert!(rest.wakes.iter().all(|wake| wake.fence.is_some()));
    assert_eq!(woken(&stage.step(&claim)), Vec::<String>::new());
    assert_eq!(stage.holders(), names);
    let fences = names.iter().map(|who| fence(&stage.extends(who, 30_000)));
    let mut fences: Vec<_> = fences.collect();
    fences.dedup();
    assert_eq!(fences.len(), 1);
}

/// A release advances before it and after it.
#[test]
fn a_writer_granted_by_its_own_release_lets_in_64_readers() {
    let mut stage = Stage::new();
    stage.waits_in(Exclusive, "ann", 1_000);
    stage.waits_in(Exclusive, "wes", 30_000);
    for number in 0..70 {
        stage.waits_in(Shared, &format!("r{number:02}"), 30_000);
    }
    stage.now_ms += 1_001;
    let outcome = stage.releases("wes", None);
    assert_eq!(outcome.reply, Reply::Released);
    assert_eq!(outcome.wakes.len(), 1 + GRANTS_MOST);
    assert_eq!(stage.queue().len(), 6);
}

#[test]
fn a_refusal_shows_the_reader_that_ends_last() {
    let mut stage = Stage::new();
    for (who, ms) in [("cid", 700), ("bob", 500), ("ann", 900)] {
        stage.waits_in(Shared, who, ms);
    }
    let refused = stage.waits_in(Exclusive, "wes", 30_000).reply;
    assert_eq!(behind(&refused), ("ann".into(), 2, 901));
    // Who waits behind the writer waits for all of them, too, and asks a little later.
    let refused = stage.waits_in(Shared, "dan", 30_000).reply;
    assert_eq!(behind(&refused), ("ann".into(), 2, 911));
    let refused = stage.waits_in(slots(2), "eve", 30_000).reply;
    assert_eq!(behind(&refused), ("ann".into(), 2, 921));
    // Of two with one end, that with the lower token.
    fence(&stage.extends("cid", 900));
    let refused = stage.waits_in(Exclusive, "wes", 30_000).reply;
    assert_eq!(behind(&refused), ("ann".into(), 2, 901));
    assert_eq!(stage.holder().as_deref(), Some("ann"));
}

#[test]
fn wanted_tells_each_client_once_and_at_most_16() {
    let reader = |number: u64, client: u64| {
        Owner::new(
            u128::from(number),
            ClientId::new(client),
            "web-3",
            4121,
            "r",
        )
        .unwrap()
    };
    let mut stage = Stage::new();
    // Two readers of each client; those that joined later end later.
    for number in 0..12 {
        let ms = 30_000 + number;
        fence(
            &stage
                .step(&acquire_in(Shared, reader(number, number / 2), ms, None))
                .reply,
        );
    }
    assert_eq!(stage.waits_in(Exclusive, "wes", 30_000).wanted.len(), 6);
    assert_eq!(stage.waits_in(Shared, "bob", 30_000).wanted, []);
    let wanted = stage.waits_in(Exclusive, "wes", 30_000).wanted;
    let expected = [11, 9, 7, 5, 3, 1].map(|number| reader(number, number / 2));
    assert_eq!(wanted, expected, "the last to end first");
    // More than 16 clients: of those that end last.
    stage.releases("wes", None);
    stage.releases("bob", None);
    for number in 100..120 {
        let ms = 40_000 + number;
        fence(
            &stage
                .step(&acquire_in(Shared, reader(number, number), ms, None))
                .reply,
        );
    }
    let wanted = stage.waits_in(Exclusive, "wes", 30_000).wanted;
    let expected: Vec<_> = (104..120)
        .rev()
        .map(|number| reader(number, number))
        .collect();
    assert_eq!(wanted, expected);
}

#[test]
fn inspect_shows_100_and_counts_the_rest() {
    let seen = |stage: &mut Stage| match stage.step(&Step::Inspect).reply {
        Reply::Seen(seen) => *seen,
        other => panic!("{other:?}"),
    };
    for (readers, omitted) in [(99, 0), (100, 0), (101, 1), (150, 50)] {
        let mut stage = Stage::new();
        assert_eq!(seen(&mut stage), Snapshot::new(None, vec![]));
        // Those that joined later end earlier.
        for number in 0..readers {
            stage.waits_in(Shared, &format!("r{number:03}"), 30_000 - number);
        }
        let seen = seen(&mut stage);
        let shown: Vec<_> = seen
            .holders()
            .map(|holder| match &holder.who {
                HolderIdentity::Owner(owner) => owner.note(),
                HolderIdentity::Foreign { .. } => unreachable!(),
            })
            .collect();
        let expected: Vec<_> = (0..readers.min(100))
            .map(|number| format!("r{number:03}"))
            .collect();
        assert_eq!((shown, seen.omitted), (expected, omitted));
        let last = seen.holder.unwrap().expires_in;
        assert_eq!(last, Some(Duration::from_secs(30)));
    }
}

#[test]
fn a_foreign_lock_excludes_readers() {
    let mut stage = Stage::new();
    stage.is_held_by_another_program();
    for mode in [Shared, slots(2)] {
        assert_eq!(ahead(&stage.tries_in(mode, "ann")).0, 0);
    }
    stage.waits_in(Shared, "ann", 30_000);
    stage.waits_in(Shared, "bob", 30_000);
    let name = stage.name.clone();
    stage.world.entry(&name).foreign = None;
    let outcome = stage.waits_in(Shared, "bob", 30_000);
    fence(&outcome.reply);
    assert_eq!(woken(&outcome), ["ann"]);
}

#[test]
fn a_reader_that_kept_its_hold_keeps_out_writers_only() {
    let mut stage = Stage::new();
    let phase = fence(&stage.tries_in(Shared, "ann"));
    assert_eq!(stage.releases("ann", Some(5_000)).reply, Reply::Released);
    assert_eq!(fence(&stage.tries_in(Shared, "bob")), phase);
    stage.releases("bob", None);
    assert!(matches!(stage.tries_in(Exclusive, "wes"), Reply::Busy(_)));
    stage.now_ms += 5_001;
    fence(&stage.tries_in(Exclusive, "wes"));
}

/// A process whose end the store sees: its reads end with it, and those of others do not.
#[test]
fn reads_end_with_their_process() {
    struct Ends;
    impl Presence for Ends {
        fn holder_gone(&self, owner: &Owner) -> bool {
            owner.note() == "ann"
        }

        fn waiter_gone(&self, _: &Waiter) -> bool {
            false
        }
    }
    let mut stage = Stage::new();
    for who in ["ann", "bob"] {
        fence(&stage.tries_in(Shared, who));
    }
    let now = leasehold_core::Now::at_micros(stage.now_ms * 1_000);
    let step = Step::Release {
        owner: owner("bob"),
        keep: Some(crate::run::ttl(1_000)),
        fence: None,
    };
    let name = stage.name.clone();
    stage.world.apply(now, &name, &step, &Ends);
    assert_eq!(stage.holders(), ["bob"]);
    // Nothing is left to break of one that is gone.
    let mut stage = Stage::new();
    let held = fence(&stage.tries_in(Exclusive, "ann"));
    let step = Step::Break { fence: held };
    let broken = stage.world.apply(now, &name, &step, &Ends);
    assert_eq!(broken.reply, Reply::NotHeld(None));
}
