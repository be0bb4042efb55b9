//! The cost of one step of the rules: `cargo bench -p leasehold-core --bench step`.

use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use leasehold_core::{
    Block, ClientId, LockName, Mode, Now, Owner, Step, Ttl, UnknownPresence, Wait, World,
};

const NOW: Now = Now::at_micros(1_000_000);

fn owner(number: u128) -> Owner {
    Owner::new(number, ClientId::new(1), "host", 1, "").expect("short texts")
}

fn acquire(owner: Owner) -> Step {
    Step::Acquire {
        owner,
        mode: Mode::Exclusive,
        ttl: Ttl::new(Duration::from_secs(30)).expect("within the bounds"),
        block: Block::ONE,
        wait: Some(Wait { listening: true }),
    }
}

fn release(owner: Owner) -> Step {
    Step::Release {
        owner,
        keep: None,
        fence: None,
    }
}

fn steps(bench: &mut Criterion) {
    let name = LockName::new("m").expect("a name");
    let (take, give) = (acquire(owner(0)), release(owner(0)));
    let mut world = World::default();
    bench.bench_function("acquire_release/alone", |bencher| {
        bencher.iter(|| {
            world.apply(NOW, &name, &take, &UnknownPresence);
            world.apply(NOW, &name, &give, &UnknownPresence)
        });
    });

    // The holder releases to the first of a hundred waiters, and another waiter joins.
    let mut crowd = World::default();
    for number in 0..=100 {
        crowd.apply(NOW, &name, &acquire(owner(number)), &UnknownPresence);
    }
    let come = acquire(owner(101));
    bench.bench_function("acquire_release/hundred_wait", |bencher| {
        bencher.iter_batched_ref(
            || crowd.clone(),
            |world| {
                world.apply(NOW, &name, &give, &UnknownPresence);
                world.apply(NOW, &name, &come, &UnknownPresence)
            },
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(benches, steps);
criterion_main!(benches);
