//! The blocking facade: it has every method and setting of the async API, without an executor.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use leasehold::doctor::Examination;
use leasehold::{Clock, Error, LeaseEnd, LossCause, blocking};
use syn::{ImplItem, Item, Receiver, Type, Visibility};

const MS: Duration = Duration::from_millis(1);
const TTL: Duration = Duration::from_secs(30);

#[test]
fn a_client_is_built_and_closed_without_an_executor() {
    let dir = tempfile::tempdir().expect("a directory");
    let url = format!("local:{}/locks.db", dir.path().display());
    let builder = || blocking::Client::builder().namespace("shop").host("test");
    let client = builder().connect_blocking(&url).expect("it works");
    let other = blocking::Client::connect(&url).expect("it works");
    assert_eq!(client.store(), other.store());
    assert_ne!(client.id(), other.id());
    let lease = client.mutex("m").acquire().expect("it is free");
    let held = other.inspect("shop:m").expect("it answers").holder;
    assert_eq!(held.and_then(|holder| holder.fence), Some(lease.fence()));
    let examined = builder().examine_blocking(&url, &Examination::new(TTL).quick(true));
    drop(examined.expect("it answers"));
    assert!(client.close_within(TTL) && client.close());
    assert_eq!(lease.loss().map(|lost| lost.cause), Some(LossCause::Closed));
    let refused = leasehold::Client::from(client);
    let refused = blocking::Client::from(refused).mutex("m").try_acquire();
    assert!(refused.expect_err("it is closed").is_closed());
}

#[test]
fn a_quorum_is_refused_without_an_executor() {
    let builder = || blocking::Client::builder().quorum_longest_ttl(TTL);
    let servers = ["redis://127.0.0.1:1/", "redis://127.0.0.1:2/"];
    let refused = blocking::Client::connect_quorum(servers).expect_err("two");
    assert!(refused.to_string().contains("no majority of two"));
    let refused = builder().quorum_durable(true);
    let refused = refused.connect_quorum_blocking(servers).expect_err("two");
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
}

#[test]
fn locks_of_each_kind_are_taken_together() {
    let client = blocking::Client::embedded().expect("a thread");
    let (mutex, read) = (client.mutex("m"), client.rw_lock("r").read());
    let (slots, more) = (client.semaphore("s", 2), client.mutex("n"));
    let all = client.all([&mutex, &read, &slots]).and(&more);
    let leases = all.acquire().expect("they are free");
    let names: Vec<_> = leases.iter().map(leasehold::Lease::name).collect();
    assert_eq!(names, ["m", "n", "r", "s"]);
    let permit = leases.get("s").expect("it is there");
    assert_eq!(permit.slot().map(|slot| slot.number), Some(1));
    assert!(mutex.try_acquire().expect("it answers").is_none());
    assert!(read.try_acquire().expect("it answers").is_some());
    leases.release().expect("held");
    assert!(mutex.try_acquire().expect("it answers").is_some());
}

#[test]
fn a_mutex_has_all_settings() {
    let client = blocking::Client::embedded().expect("a thread");
    let told = Arc::new(AtomicUsize::new(0));
    let tells = told.clone();
    let mutex = client
        .mutex("m")
        .ttl(TTL)
        .note("n")
        .auto_renew(true)
        .max_hold(TTL * 2)
        .linger(MS)
        .at_least(MS * 200)
        .on_wait(move |_| {
            tells.fetch_add(1, Ordering::SeqCst);
        });
    let clock = Clock::system();
    let begun = clock.now();
    let lease = mutex.acquire().expect("it is free");
    assert_eq!(lease.owner().note(), "n");
    drop(lease);
    let next = mutex.acquire_within(TTL).expect("its turn");
    assert!(clock.now().since(begun) >= MS * 200, "at least");
    assert!(told.load(Ordering::SeqCst) > 0);
    drop(next);
}

#[test]
fn work_runs_under_a_lease() {
    let client = blocking::Client::embedded().expect("a thread");
    let mutex = client.mutex("m").ttl(TTL);
    let fence = |lease: &blocking::Lease| Ok::<_, Error>(lease.fence());
    let first = mutex.run(fence).expect("it is free");
    let second = mutex.run_within(TTL, fence).expect("it is free");
    assert!(second > first);
    let ran = mutex.try_run(|_| mutex.try_run(fence));
    assert_eq!(ran.expect("it answers"), Some(None), "busy inside");

    // The error of the work comes out as it is, and the lock is free.
    let failed = mutex.run(|_| client.inspect(""));
    assert!(matches!(failed, Err(Error::Invalid(_))), "{failed:?}");

    // A loss cannot cancel the closure. `run` reports it after that.
    let mut ended = false;
    let lost = mutex.run(|lease| {
        let broken = client.break_lock("m", lease.fence())?;
        ended = broken && lease.extend(TTL).is_err();
        Ok::<_, Error>(())
    });
    assert!(lost.expect_err("it was broken").is_lost() && ended);

    let lease = mutex.acquire().expect("it is free");
    assert!(client.break_lock("m", lease.fence()).expect("it answers"));
    lease.extend(TTL).expect_err("it was broken");
    let never = lease.run(|_| -> Result<(), Error> { panic!("it was lost before") });
    assert!(never.expect_err("it was lost before").is_lost());
}

#[test]
fn a_watch_blocks_another_thread_until_the_end() {
    let client = blocking::Client::embedded().expect("a thread");
    let lease = client.mutex("m").ttl(TTL).acquire().expect("it is free");
    let watch = lease.watch();
    assert!(!watch.is_lost() && watch.valid_for() > TTL / 2);
    thread::scope(|scope| {
        let lost = scope.spawn(|| watch.wait_lost());
        assert!(client.break_lock("m", lease.fence()).expect("it answers"));
        lease.extend(TTL).expect_err("it was broken");
        let lost = lost.join().expect("no panic");
        assert_eq!(lost.fence, Some(watch.fence()));
        assert_eq!(lease.wait_lost().fence, lost.fence);
    });
    assert!(matches!(watch.wait_ended(), LeaseEnd::Lost(_)));
    let lease = client.mutex("m").ttl(TTL).acquire().expect("it is free");
    let watch = lease.watch();
    lease.release().expect("it was held");
    assert!(matches!(watch.wait_ended(), LeaseEnd::Released));
}

#[test]
fn a_task_that_waits_for_itself_is_told_so() {
    let client = blocking::Client::embedded().expect("a thread");
    let mutex = client.mutex("m").ttl(TTL);
    let lease = mutex.acquire().expect("it is free");
    assert!(mutex.try_acquire().expect("it answers").is_none());
    let error = mutex.acquire_within(MS * 50).expect_err("not re-entrant");
    let text = error.to_string();
    assert!(text.contains("held by this client, "), "{text}");
    assert!(text.contains(&lease.owner().to_string()), "{text}");
    assert!(error.is_timeout() && !error.is_unavailable());
    assert!(matches!(error, Error::Timeout(timeout) if timeout.by_this_client));
}

/// A method: whether it is `async`, and whether it borrows `self`, so that `Deref` reaches it.
#[derive(Debug, Clone, Copy)]
struct Verb {
    waits: bool,
    borrows: bool,
}

type Types = BTreeMap<String, BTreeMap<String, Verb>>;

/// The public methods of each type in these files, and the types that implement `Deref`.
fn verbs(files: &[PathBuf]) -> (Types, BTreeSet<String>) {
    let (mut types, mut derefs) = (Types::new(), BTreeSet::new());
    for file in files {
        let text = fs::read_to_string(file).expect("a source file");
        for item in syn::parse_file(&text).expect("it compiles").items {
            let Item::Impl(item) = item else { continue };
            let Type::Path(of) = &*item.self_ty else {
                continue;
            };
            let last = |path: &syn::Path| path.segments.last().map(|name| name.ident.to_string());
            let of = last(&of.path).expect("a name");
            if let Some((_, of_trait, _)) = &item.trait_ {
                if last(of_trait).as_deref() == Some("Deref") {
                    derefs.insert(of);
                }
                continue;
            }
            let verbs = types.entry(of).or_default();
            for verb in item.items {
                let ImplItem::Fn(verb) = verb else { continue };
                let is_shared =
                    |this: &Receiver| this.reference.is_some() && this.mutability.is_none();
                let waits = verb.sig.asyncness.is_some();
                let borrows = verb.sig.receiver().is_some_and(is_shared);
                if matches!(verb.vis, Visibility::Public(_)) {
                    verbs.insert(verb.sig.ident.to_string(), Verb { waits, borrows });
                }
            }
        }
    }
    (types, derefs)
}

fn sources(at: &Path) -> Vec<PathBuf> {
    if at.is_file() {
        return vec![at.to_owned()];
    }
    let entries = fs::read_dir(at).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.flat_map(|path| sources(&path)).collect()
}

/// Types of the async API that the facade has too. The builder is one type for both.
const FACADE: [&str; 8] = [
    "Cache",
    "Client",
    "Mutex",
    "Lease",
    "LossWatch",
    "Detached",
    "TimestampLock",
    "TimestampHold",
];

/// Methods whose future owns the mutex. The facade has no futures, so it does not need them.
const FUTURES_ONLY: [&str; 3] = ["acquire_owned", "acquire_within_owned", "try_acquire_owned"];

/// The door for `leasehold-cache`.
const DOOR: &str = "entries";

/// The name of the method in the blocking API.
fn name_here(verb: &str) -> &str {
    match verb {
        "lost" => "wait_lost",
        "ended" => "wait_ended",
        "connect" => "connect_blocking",
        "connect_quorum" => "connect_quorum_blocking",
        "init_quorum" => "init_quorum_blocking",
        "examine" => "examine_blocking",
        "examine_quorum" => "examine_quorum_blocking",
        verb => verb,
    }
}

#[test]
fn the_facade_has_every_verb_of_the_async_one() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (src, cache) = (home.join("src"), home.join("../cache/src"));
    let all = [sources(&src), sources(&cache)].concat();
    let is_facade =
        |path: &PathBuf| path.starts_with(src.join("blocking")) || path.ends_with("blocking.rs");
    let (facade, library): (Vec<_>, Vec<_>) = all.into_iter().partition(is_facade);
    let ((theirs, derefs), (library, _)) = (verbs(&facade), verbs(&library));
    let mut missing = Vec::new();
    let mut compared = 0;
    for name in FACADE.iter().chain(&["ClientBuilder"]) {
        let has = &theirs[*name];
        for (verb, is) in library[*name].iter().filter(|(verb, _)| *verb != DOOR) {
            compared += 1;
            let is_client = *name == "Client";
            let here = if is_client { verb } else { name_here(verb) };
            let is_reached = !is.waits && is.borrows && derefs.contains(*name);
            let is_shared = *name == "ClientBuilder" && !is.waits;
            let is_missing = !has.contains_key(here) && !is_reached && !is_shared;
            if is_missing && !FUTURES_ONLY.contains(&verb.as_str()) {
                missing.push(format!("{name}::{here}"));
            }
        }
    }
    assert!(compared > 80, "only {compared} were found");
    assert!(missing.is_empty(), "not in `blocking`: {missing:?}");
}
