//! Values that are no times, stores without this protocol, wrong settings, and servers that refuse scripts.

use leasehold::timestamp::Unit;
use leasehold::{Client, Error, LossCause, StoreErrorKind};
use testkit::{Reply, eventually};

use crate::common::{invalid, lost, store_error};
use crate::recipe::Plain;
use crate::{LONG, TTL, connect, frozen, scene, take, value};

#[tokio::test]
async fn t3_a_value_that_is_no_time_is_named_and_left_alone() {
    let (server, client) = scene().await;
    let mutex = client.mutex("of-ours").ttl(TTL).acquire().await.unwrap();
    let seconds = client.timestamp_lock("k").ttl(TTL);
    let millis = seconds.clone().unit(Unit::Millis);
    for (text, named, locks) in [
        ("1", "holds a string of 1 bytes", vec![&seconds, &millis]),
        ("", "holds a string of 0 bytes", vec![&seconds, &millis]),
        ("1767225600000", "no time in seconds", vec![&seconds]),
        ("1767225600", "no time in milliseconds", vec![&millis]),
        (
            mutex.owner().token(),
            "the token of a mutex, held by",
            vec![&seconds],
        ),
    ] {
        server.cli(&["SET", "k", text]);
        for lock in locks {
            for lock in [lock.clone(), lock.clone().without_scripts()] {
                // A waiter does not wait for such a value either.
                for refused in [lock.try_acquire().await, lock.acquire().await.map(Some)] {
                    let error = store_error(refused);
                    assert_eq!(error.kind, StoreErrorKind::Protocol);
                    assert!(!error.may_have_taken_effect);
                    let said = error.to_string();
                    assert!(said.contains("\"k\"") && said.contains(named), "{said}");
                }
            }
        }
        assert_eq!(value(&server, "k").as_deref(), Some(text));
    }
    server.cli(&["DEL", "k"]);
    server.cli(&["HSET", "k", "a", "b"]);
    for lock in [seconds.clone(), seconds.without_scripts()] {
        let refused = lock.try_acquire().await.unwrap_err().to_string();
        assert!(refused.contains("\"k\" holds a hash"), "{refused}");
    }
}

#[tokio::test]
async fn t3_what_is_written_over_ours_may_be_anything() {
    let (server, client) = scene().await;
    let hold = take(&client.timestamp_lock("k").ttl(TTL)).await;
    server.cli(&["DEL", "k"]);
    server.cli(&["HSET", "k", "a", "b"]);
    let lost = lost(hold.extend(TTL).await);
    let LossCause::NotHeld(Some(_)) = lost.cause else {
        panic!("{lost}");
    };
    assert_eq!(server.cli(&["TYPE", "k"]).text(), "hash");
}

#[tokio::test]
async fn only_a_redis_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let local = format!("local:{}/locks.db", directory.path().display());
    for url in ["memory:", &local] {
        let client = Client::connect(url).await.unwrap();
        for lock in [
            client.timestamp_lock("k"),
            client.timestamp_lock("k").without_scripts(),
        ] {
            let refused = invalid(lock.acquire().await);
            assert!(refused.to_string().contains("use a mutex"), "{refused}");
        }
    }
}

#[tokio::test]
async fn settings_and_names_are_checked_first_with_namespace() {
    let server = frozen();
    let builder = Client::builder().namespace("app").request_timeout(LONG);
    let client = builder.connect(&server.url()).await.unwrap();
    for lock in [
        client.timestamp_lock(""),
        client.timestamp_lock("k").ttl(TTL * 10_000),
    ] {
        invalid(lock.try_acquire().await);
    }
    let hold = take(&client.timestamp_lock("k")).await;
    assert_eq!((hold.name(), value(&server, "k")), ("k", None));
    assert!(value(&server, "app:k").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_scripts_is_asked_by_the_recipe() {
    let server = frozen();
    let rules = [
        "ACL",
        "SETUSER",
        "worker",
        "on",
        ">secret",
        "~*",
        "&*",
        "+@all",
        "-@scripting",
    ];
    assert_eq!(server.cli(&rules), Reply::Str(b"OK".to_vec()));
    let url = format!("redis://worker:secret@127.0.0.1:{}/", server.port());
    let client = connect(&url).await;
    let lock = client.timestamp_lock("k").ttl(TTL);
    let refused = lock.try_acquire().await;
    assert!(
        matches!(&refused, Err(Error::Store(error)) if error.kind == StoreErrorKind::Denied),
        "{refused:?}"
    );
    assert_eq!(value(&server, "k"), None);

    let lock = lock.without_scripts();
    let hold = take(&lock).await;
    let mut theirs = Plain::new(&server, Unit::Seconds);
    assert_eq!(theirs.lock("k", 30), None);
    hold.extend(2 * TTL).await.unwrap();
    assert_eq!(value(&server, "k"), Some(hold.deadline().to_string()));
    drop(hold);
    eventually(LONG, "it is released", || value(&server, "k").is_none());
    let deadline = theirs.lock("k", 30).expect("it is free");
    assert!(lock.try_acquire().await.unwrap().is_none());
    server.clock().set((deadline + 1) * 1_000_000);
    take(&lock).await.release().await.unwrap();
}

#[test]
fn without_async_it_is_the_same() {
    let server = frozen();
    let builder = Client::builder().request_timeout(LONG);
    let client = builder.connect_blocking(&server.url()).unwrap();
    let lock = client.timestamp_lock("k").map(|lock| lock.ttl(TTL));
    let hold = lock.acquire().unwrap();
    assert_eq!(value(&server, "k"), Some(hold.deadline().to_string()));
    assert!(lock.try_acquire().unwrap().is_none());
    let busy = lock.acquire_within(TTL / 300);
    assert!(matches!(busy, Err(Error::Timeout(_))), "{busy:?}");
    hold.extend(2 * TTL).unwrap();
    hold.release_after(TTL).unwrap();
    server.cli(&["SET", "k", "1500000000"]);
    let hold = lock.try_acquire().unwrap().expect("it has passed");
    server.cli(&["DEL", "k"]);
    assert!(hold.extend(TTL).is_err());
    assert_eq!(hold.wait_lost().cause, LossCause::NotHeld(None));
    lost(hold.release());
}
