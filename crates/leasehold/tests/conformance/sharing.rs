//! The effects of one client that other clients see.

use leasehold::{Client, Error, HolderIdentity, Lease, Snapshot};
use tokio::task::JoinSet;

use crate::common::{Place, TTL, eventually, invalid, look, on_every_store, stand_in_line, take};

async fn inspect_shows_holder_queue_and_fence(place: Place) {
    let (a, b) = place.two().await;
    let nothing = look(&b, "m").await;
    assert!(nothing.holder.is_none() && nothing.queue.is_empty());
    let held = take(&a, "m").await;
    let mut waiting = JoinSet::new();
    stand_in_line(&mut waiting, 0, b.mutex("m").ttl(TTL * 2)).await;

    let seen = look(&b, "m").await;
    let holder = seen.holder.expect("it is held");
    assert_eq!(holder.who, HolderIdentity::Owner(held.owner().clone()));
    assert_eq!(holder.fence, Some(held.fence()));
    assert!(holder.expires_in <= Some(TTL) && holder.held_for < Some(TTL));
    let [waiter] = seen.queue.as_slice() else {
        panic!("{:?}", seen.queue)
    };
    assert_eq!((waiter.owner.client(), waiter.ttl.get()), (b.id(), TTL * 2));
}

async fn inspect_many_has_a_result_for_each_name(place: Place) {
    let (a, b) = place.two().await;
    let mut names: Vec<_> = (0..70).map(|number| format!("m {number}")).collect();
    names[40] = "a\nb".into();
    let held = [take(&a, "m 0").await, take(&a, "m 33").await];
    let twice = take(&a, "m 69").await;
    names.push("m 69".into());

    let seen = b.inspect_many(&names).await;
    assert_eq!(seen.len(), 71);
    for (name, seen) in names.iter().zip(seen) {
        let holds = |lease: &&Lease| lease.name() == name;
        match seen {
            Ok(seen) => {
                let lease = held.iter().chain([&twice]).find(holds);
                let fence = seen.holder.and_then(|holder| holder.fence);
                assert_eq!(fence, lease.map(Lease::fence), "{name}");
            }
            Err(error) => {
                assert_eq!(
                    (name.as_str(), invalid::<()>(Err(error)).what),
                    ("a\nb", "lock name")
                );
            }
        }
    }
    assert!(b.inspect_many([""; 0]).await.is_empty());
}

async fn inspect_all_tells_wanted_locks_that_are_not_free(place: Place) {
    let (a, b) = place.two().await;
    let [one, two, other] = [
        take(&a, "a1").await,
        take(&a, "a2").await,
        take(&a, "b").await,
    ];
    for lease in [&one, &two, &other] {
        lease.extend(TTL).await.expect("it is held");
    }
    let found = async || {
        let all = b.inspect_all(|name| name.starts_with('a')).await;
        let fence = |seen: Result<Snapshot, Error>| seen.expect("it answers").holder?.fence;
        let all = all.expect("it answers").into_iter();
        all.map(|(name, seen)| (name, fence(seen)))
            .collect::<Vec<_>>()
    };
    let [of_one, of_two] = [&one, &two].map(|lease| (lease.name().to_owned(), Some(lease.fence())));
    eventually("the index knows both", async || {
        found().await == [of_one.clone(), of_two.clone()]
    })
    .await;
    one.release().await.expect("it is held");
    assert_eq!(found().await, [of_two]);
}

async fn host_pid_and_note_are_shown_to_others(place: Place) {
    let builder = Client::builder().host("deploy@web-3, süd");
    let a = place.connect(builder).await.expect("it works");
    let b = place.client().await;
    let mutex = a.mutex("m").ttl(TTL).note("nightly: 100 %\n");
    let _held = mutex.acquire().await.expect("it is free");
    let holder = look(&b, "m").await.holder.expect("it is held");
    let HolderIdentity::Owner(owner) = holder.who else {
        panic!("{holder:?}")
    };
    assert_eq!(owner.host(), "deploy@web-3, süd");
    assert_eq!(owner.note(), "nightly: 100 %\n");
    assert_eq!(owner.pid(), std::process::id());
}

async fn namespaces_keep_apart(place: Place) {
    let within = async |namespace: &str| {
        let builder = Client::builder().namespace(namespace);
        place.connect(builder).await.expect("it works")
    };
    let (test, prod, bare) = (
        within("test").await,
        within("prod").await,
        place.client().await,
    );
    let (in_test, in_prod) = (take(&test, "m").await, take(&prod, "m").await);
    assert_eq!((in_test.name(), in_prod.name()), ("m", "m"));
    assert_eq!(look(&bare, "m").await.holder, None);
    let prefixed = look(&bare, "test:m").await.holder.expect("it is held");
    assert_eq!(prefixed.who, HolderIdentity::Owner(in_test.owner().clone()));

    in_test.extend(TTL).await.expect("it is held");
    in_prod.extend(TTL).await.expect("it is held");
    for client in [&test, &prod] {
        let names = || async { client.names().await.expect("it answers") };
        eventually("the index knows it", async || names().await == ["m"]).await;
    }
    let mut all = bare.names().await.expect("it answers");
    all.sort();
    assert_eq!(all, ["prod:m", "test:m"]);
}

async fn names_shows_what_was_renewed_and_is_held(place: Place) {
    let (a, b) = place.two().await;
    assert!(b.names().await.expect("it answers").is_empty());
    let lease = take(&a, "orders of {user}:42").await;
    lease.extend(TTL).await.expect("it is held");
    let names = async || b.names().await.expect("it answers");
    eventually("the index knows it", async || {
        names().await == ["orders of {user}:42"]
    })
    .await;
    lease.release().await.expect("it is held");
    assert!(names().await.is_empty());
}

async fn names_shows_what_is_waited_for(place: Place) {
    let (a, b) = place.two().await;
    let mutex = a.mutex("m").ttl(TTL).auto_renew(false);
    let _held = mutex.acquire().await.expect("it is free");
    let mut waiting = JoinSet::new();
    stand_in_line(&mut waiting, 0, b.mutex("m").ttl(TTL)).await;
    eventually("the index knows it", async || {
        a.names().await.expect("it answers") == ["m"]
    })
    .await;
}

on_every_store! {
    inspect_shows_holder_queue_and_fence
    inspect_many_has_a_result_for_each_name
    inspect_all_tells_wanted_locks_that_are_not_free
    host_pid_and_note_are_shown_to_others
    namespaces_keep_apart
    names_shows_what_was_renewed_and_is_held
    names_shows_what_is_waited_for
}
