//! Leasehold. All workers of the process share one client.
//! `release=await` (default) or `release=drop`, which releases in the background; `linger_ms=N`; `home=1` creates the client outside of
//! the workers' runtime, so the client's own thread does the I/O.

use std::time::Duration;

use leasehold::kind::Kind;
use leasehold::{All, Client, Lock, Mutex, ReadLock, Semaphore};
use leasehold_bench::{Peer, Section, Take, drive, text};

#[derive(Clone)]
struct Leasehold {
    client: Client,
    take: Take,
    ttl: Duration,
    linger: Duration,
    awaited: bool,
}

enum Wanted {
    Mutex(Mutex),
    Read(ReadLock),
    Slot(Semaphore),
    /// What each cycle takes, in turn, and how many cycles were done.
    Several(Vec<All>, usize),
}

impl Leasehold {
    fn set<K: Kind>(&self, lock: Lock<K>) -> Lock<K> {
        lock.ttl(self.ttl).linger(self.linger)
    }

    fn mutex(&self, key: &str) -> Mutex {
        self.set(self.client.mutex(key))
    }

    fn several(&self, key: &str, digits: &str) -> All {
        let names = digits.chars().map(|digit| format!("{key}:{digit}"));
        let none = self.client.all([]);
        names.fold(none, |all, name| all.and(&self.mutex(&name)))
    }

    async fn turn<K: Kind>(&self, lock: &Lock<K>, section: &mut Section) -> Result<(), String> {
        let lease = lock.acquire().await.map_err(text)?;
        section.run().await;
        if self.awaited {
            lease.release().await.map_err(text)
        } else {
            drop(lease);
            Ok(())
        }
    }
}

impl Peer for Leasehold {
    type Lock = Wanted;

    fn lock(&self, key: &str) -> Wanted {
        match &self.take {
            Take::Mutex => Wanted::Mutex(self.mutex(key)),
            Take::Read => Wanted::Read(self.set(self.client.rw_lock(key).read())),
            Take::Slot(slots) => Wanted::Slot(self.set(self.client.semaphore(key, *slots))),
            Take::Several(each) => {
                let each = each.iter().map(|digits| self.several(key, digits));
                Wanted::Several(each.collect(), 0)
            }
        }
    }

    async fn cycle(&self, lock: &mut Wanted, section: &mut Section) -> Result<(), String> {
        match lock {
            Wanted::Mutex(lock) => self.turn(lock, section).await,
            Wanted::Read(lock) => self.turn(lock, section).await,
            Wanted::Slot(lock) => self.turn(lock, section).await,
            Wanted::Several(each, done) => {
                let leases = each[*done % each.len()].acquire().await.map_err(text)?;
                section.run().await;
                leases.release().await.map_err(text)?;
                *done += 1;
                Ok(())
            }
        }
    }

    async fn hold(&self, key: &str) {
        let mutex = self.client.mutex(key).ttl(Duration::from_secs(120));
        std::mem::forget(mutex.acquire().await.expect("the lock is free"));
    }

    async fn close(&self) {
        self.client.close().await;
    }
}

async fn connect(urls: &[String], home: bool) -> Client {
    let urls = urls.to_owned();
    let connect = async move || match &urls[..] {
        [url] => Client::connect(url).await,
        several => Client::connect_quorum(several).await,
    };
    let connected = if home {
        let elsewhere = move || leasehold_bench::runtime(1).block_on(connect());
        // A thread outside of all runtimes; the runtime inside it ends at once.
        let thread = std::thread::spawn(elsewhere);
        thread.join().expect("it does not panic")
    } else {
        connect().await
    };
    connected.expect("redis-server answers")
}

fn main() {
    drive(async |args, load| Leasehold {
        client: connect(&load.urls, args.text("home").is_some()).await,
        take: load.take.clone(),
        ttl: load.ttl,
        linger: args.millis("linger_ms", 0.0),
        awaited: match args.text("release") {
            None | Some("await") => true,
            Some("drop") => false,
            Some(other) => panic!("release={other}: await or drop"),
        },
    });
}
