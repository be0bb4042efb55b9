//! The actor of the library.

use std::collections::BTreeMap;
use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold::kind::Kind;
use leasehold::{Client, Error, Fence, Lease, Lock};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{Answer, Step, orders};

pub(super) fn act() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (told, heard) = unbounded_channel();
    thread::scope(|scope| {
        scope.spawn(move || orders().for_each(|order| told.send(order).unwrap()));
        runtime.block_on(serve(heard));
    });
}

async fn serve(mut heard: UnboundedReceiver<(String, String, Step)>) {
    let client = Client::connect(&env::var("LEASEHOLD_URL").unwrap())
        .await
        .unwrap();
    println!("ready {}", env!("CARGO_PKG_VERSION"));
    let (mut requests, mut open) = (FuturesUnordered::new(), BTreeMap::new());
    loop {
        let (name, verb, step) = tokio::select! {
            Some(()) = requests.next() => continue,
            order = heard.recv() => match order {
                Some(order) => order,
                None => break,
            },
        };
        match &*verb {
            "acquire" => {
                let (tell, verbs) = unbounded_channel();
                open.insert(name.clone(), tell);
                requests.push(request(&client, name, step, verbs));
            }
            "cancel" | "release" | "check" => open[&name].send(verb).unwrap(),
            _ => Answer::of(&name, "cannot").say(),
        }
    }
    client.close().await;
}

/// Asks for a lock, and says what becomes of it. A macro, since each kind has types of its own.
macro_rules! follow {
    ($lock:expr, $name:expr, $step:expr, $verbs:expr, $lease:ident => $fence:expr, $slot:expr) => {{
        let lock = $lock;
        let asked = async {
            match $step.wait {
                None => lock.acquire().await.map(Some),
                Some(0) => lock.try_acquire().await,
                Some(wait) => lock
                    .acquire_within(Duration::from_millis(wait))
                    .await
                    .map(Some),
            }
        };
        let say = |is| Answer::of(&$name, is).say();
        let $lease = tokio::select! {
            asked = asked => match asked {
                Ok(Some(lease)) => lease,
                Ok(None) => return say("busy"),
                Err(error) => return say(kind(&error)),
            },
            Some(_cancel) = $verbs.recv() => return say("cancelled"),
        };
        let fence: Option<Fence> = $fence;
        Answer {
            fence: fence.map(Fence::get),
            slot: $slot,
            ..Answer::of(&$name, "held")
        }
        .say();
        let mut is_told = false;
        loop {
            let verb = tokio::select! {
                _lost = $lease.lost(), if !is_told => {
                    is_told = true;
                    say("lost");
                    continue;
                }
                verb = $verbs.recv() => verb,
            };
            match verb.as_deref() {
                Some("check") => say(if $lease.valid_for().is_zero() {
                    "lost"
                } else {
                    "valid"
                }),
                Some(_) => {
                    let released = $lease.release().await;
                    return say(released.map_or_else(|error| kind(&error), |()| "released"));
                }
                None => return,
            }
        }
    }};
}

async fn request(client: &Client, name: String, step: Step, mut verbs: UnboundedReceiver<String>) {
    let lock = step.lock.as_deref().unwrap();
    let mutex = client.mutex(lock);
    if let Some(also) = &step.also {
        let all = client.all([&set(mutex, &name, &step)]);
        let all = also.iter().fold(all, |all, lock| {
            all.and(&set(client.mutex(lock), &name, &step))
        });
        follow!(all, name, step, verbs, leases => leases.get(lock).and_then(Lease::fence), None);
    } else if let Some(slots) = step.slots {
        let semaphore = set(client.semaphore(lock, slots), &name, &step);
        follow!(semaphore, name, step, verbs, permit => None, Some(permit.slot().number));
    } else if step.mode.as_deref() == Some("read") {
        let read = set(client.rw_lock(lock).read(), &name, &step);
        follow!(read, name, step, verbs, lease => lease.fence(), None);
    } else {
        follow!(set(mutex, &name, &step), name, step, verbs, lease => Some(lease.fence()), None);
    }
}

fn set<K: Kind>(lock: Lock<K>, name: &str, step: &Step) -> Lock<K> {
    let (name, is_told) = (name.to_owned(), AtomicBool::new(false));
    let lock = lock.ttl(Duration::from_millis(step.ttl.unwrap()));
    lock.on_wait(move |_| {
        if !is_told.swap(true, Ordering::Relaxed) {
            Answer::of(&name, "waiting").say();
        }
    })
}

fn kind(error: &Error) -> &'static str {
    match error {
        Error::Timeout(_) => "timeout",
        Error::Lost(_) => "lost",
        Error::Invalid(_) => "refused",
        _ => "unavailable",
    }
}
