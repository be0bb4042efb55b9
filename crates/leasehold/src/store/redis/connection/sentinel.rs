//! Sentinels name the server that has the locks, and a majority of them may name another one at any time.
//!
//! Each dial asks them anew. Meanwhile, one task follows all of them: each tells by a message when it names another server, and is asked from
//! time to time, since a message may be lost. A sentinel may be reached by two addresses; it is known by its id.
//!
//! # Invariants
//!
//! - **SN1** A dial leads to the server that the first sentinel names which knows one. That it is a primary, the server says itself.
//! - **SN2** While a majority of the known sentinels names another server, no server is dialed, and the one in use is left at once, unless
//!   the sentinel that named it had named that other one before: then this one is newer, and the majority has not heard of it yet.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{RedisError, RedisResult, Value, from_redis_value, pipe};
use tokio::sync::Notify;

use super::dial::{Dial, first_of};
use super::link::{Link, SWITCHED, Wire};
use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::contract::Listener;
use crate::store::redis::address::{Address, Place, Watched};
use crate::store::redis::fault::{refusal, silent};

/// How often a sentinel is asked that tells nothing.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The first and the longest pause before a sentinel is connected to again.
const RECONNECT: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];

/// The sentinels of one server.
pub(crate) struct Sentinels {
    given: Address,
    watched: Arc<Watched>,
    clock: Clock,
    limit: Duration,
    seen: Mutex<Seen>,
    /// More sentinels are known.
    more: Notify,
    /// A majority has begun to name a server.
    moved: Notify,
}

#[derive(Default)]
struct Seen {
    /// In the order in which they are asked.
    known: Vec<Place>,
    /// The last answers of those that are connected.
    votes: HashMap<Place, Vote>,
    /// The last server that a majority named.
    elected: Option<Place>,
    /// The server of the last dial.
    in_use: Option<Named>,
    /// The server that was left by word of a majority.
    left: Option<Place>,
}

/// A server that a sentinel has named.
#[derive(Clone)]
struct Named {
    primary: Place,
    /// The server that this sentinel named before.
    instead_of: Option<Place>,
}

/// What a sentinel says.
struct Vote {
    /// Its id, if it tells that.
    id: Option<String>,
    /// `None` if it knows none of this name.
    primary: Option<Place>,
    /// The server that it named before, since it was connected to.
    before: Option<Place>,
    /// The ids and places of the others.
    others: Vec<(String, Place)>,
}

/// A connection to a sentinel.
struct Sentinel {
    address: Address,
    link: Link,
    wire: Wire,
}

impl Sentinels {
    /// `None` if the address is that of a server.
    pub(crate) fn of(given: &Address, clock: &Clock, limit: Duration) -> Option<Self> {
        let watched = given.watched.clone()?;
        let seen = Seen {
            known: watched.sentinels.clone(),
            ..Seen::default()
        };
        Some(Self {
            given: given.clone(),
            watched,
            clock: clock.clone(),
            limit,
            seen: Mutex::new(seen),
            more: Notify::new(),
            moved: Notify::new(),
        })
    }

    /// Where the primary is (SN1).
    pub(crate) async fn primary(&self) -> Result<Address, StoreError> {
        // An older word is no reason to leave what is found now.
        let _ = self.moved.notified().now_or_never();
        let known = self.seen().known.clone();
        let named = first_of(known, |at| self.named_by(at), &self.clock).await;
        let (at, primary) = named.map_err(|failed| self.refused(&failed))?;
        let (host, port) = &primary.primary;
        let address = self.given.of_node(host, *port);
        let mut seen = self.seen();
        // It is asked first the next time.
        seen.known.sort_by_key(|known| *known != at);
        seen.in_use = Some(primary);
        Ok(address)
    }

    /// Ready when a majority begins to name another server than this one (SN2).
    pub(super) async fn leaves(&self, primary: &Address) {
        let place = primary.place();
        loop {
            self.moved.notified().await;
            if self.seen().elected != place {
                return;
            }
        }
    }

    /// Waits for so long, or until a majority begins to name a server.
    pub(super) async fn pause(&self, pause: Duration) {
        let _ = self.clock.within(pause, self.moved.notified()).await;
    }

    /// Follows all known sentinels, and never ends. Calls `leave` when the connection is to be given up (SN2).
    pub(super) async fn follow(&self, leave: impl Fn()) {
        let (mut followed, mut following) = (HashSet::new(), FuturesUnordered::new());
        loop {
            for place in self.seen().known.clone() {
                if followed.insert(place.clone()) {
                    following.push(self.follow_one(place, &leave));
                }
            }
            tokio::select! {
                Some(gone) = following.next() => drop(followed.remove(&gone)),
                () = self.more.notified() => {}
            }
        }
    }

    /// Follows one sentinel until it is forgotten.
    async fn follow_one(&self, at: Place, leave: &impl Fn()) -> Place {
        let [first, longest] = RECONNECT;
        let mut pause = Backoff::new(first, longest);
        while !self.forgets(&at) {
            // Why it cannot be asked, a dial says.
            drop(self.hear(&at, leave, &mut pause).await);
            self.seen().votes.remove(&at);
            self.clock.sleep(pause.pause()).await;
        }
        at
    }

    /// Hears what a sentinel says, until its connection ends or another address leads to it too.
    async fn hear(
        &self,
        at: &Place,
        leave: &impl Fn(),
        pause: &mut Backoff,
    ) -> Result<(), StoreError> {
        let told = Arc::new(Notify::new());
        let tell = told.clone();
        let mut sentinel = self.open(at, Arc::new(move |_| tell.notify_one())).await?;
        let wire = sentinel.wire.clone();
        // Without permission to subscribe, it is asked from time to time.
        drop(self.within(&mut sentinel, wire.subscribe(SWITCHED)).await?);
        loop {
            let vote = self.ask(&mut sentinel).await?;
            pause.reset();
            if self.learn(at, vote) {
                leave();
            }
            if self.forgets(at) {
                return Ok(());
            }
            let next = sentinel.link.until(told.notified());
            if let Some(Err(ended)) = self.clock.within(LOOK_EVERY, next).await {
                return Err(refusal(&sentinel.address, &ended));
            }
        }
    }

    /// Notes what a sentinel says. True if the server in use is to be left (SN2).
    fn learn(&self, at: &Place, mut vote: Vote) -> bool {
        let mut guard = self.seen();
        let seen = &mut *guard;
        for (id, place) in &vote.others {
            let mut votes = seen.votes.values();
            if !votes.any(|vote| vote.id.as_ref() == Some(id)) && !seen.known.contains(place) {
                seen.known.push(place.clone());
                self.more.notify_one();
            }
        }
        vote.before = seen.named_before(at, vote.primary.as_ref());
        seen.votes.insert(at.clone(), vote);
        let Some(elected) = self.majority(seen) else {
            return false;
        };
        let is_new = seen.elected.as_ref() != Some(&elected);
        let leaves = seen.in_use.as_ref().is_some_and(|used| {
            used.primary != elected && (is_new || used.instead_of.as_ref() != Some(&elected))
        });
        if leaves {
            seen.left = seen.in_use.as_ref().map(|used| used.primary.clone());
        }
        if is_new || leaves {
            self.moved.notify_one();
        }
        seen.elected = Some(elected);
        leaves
    }

    /// The server that more than half of the known sentinels name.
    fn majority(&self, seen: &Seen) -> Option<Place> {
        let (mut all, mut voters) = (HashSet::new(), HashMap::new());
        for (at, vote) in &seen.votes {
            let id = vote.id.clone().unwrap_or_else(|| format!("{at:?}"));
            all.extend(vote.others.iter().map(|(id, _)| id.clone()));
            all.insert(id.clone());
            if let Some(primary) = &vote.primary {
                voters
                    .entry(primary)
                    .or_insert_with(HashSet::new)
                    .insert(id);
            }
        }
        let known = all.len().max(self.watched.sentinels.len());
        let mut voters = voters.into_iter();
        let found = voters.find(|(_, voters)| 2 * voters.len() > known);
        found.map(|(primary, _)| primary.clone())
    }

    /// True if a majority names another server, and this one is not newer (SN2).
    fn is_replaced(&self, named: &Named) -> bool {
        let seen = self.seen();
        let elected = self.majority(&seen);
        let Some(other) = elected.filter(|elected| *elected != named.primary) else {
            return false;
        };
        seen.left.as_ref() == Some(&named.primary) || named.instead_of != Some(other)
    }

    /// True if the server in use is to be left: a majority has named another one since the dial began (SN2).
    pub(super) fn has_left(&self) -> bool {
        let used = self.seen().in_use.clone();
        used.is_some_and(|used| self.is_replaced(&used))
    }

    /// Forgets a sentinel that the URL does not name, if it is connected to by another address, or has gone and no other one names it.
    fn forgets(&self, at: &Place) -> bool {
        let mut seen = self.seen();
        let own = seen.votes.get(at);
        let others = seen.votes.iter().filter(|(other, _)| *other != at);
        let others: Vec<&Vote> = others.map(|(_, vote)| vote).collect();
        let is_same = |other: &&Vote| own.is_some_and(|own| own.id.is_some() && own.id == other.id);
        let names = |other: &&Vote| other.others.iter().any(|(_, place)| place == at);
        let is_named = own.is_some() || others.is_empty() || others.iter().any(names);
        let is_needed = is_named && !others.iter().any(is_same);
        if self.watched.sentinels.contains(at) || is_needed {
            return false;
        }
        seen.votes.remove(at);
        seen.known.retain(|known| known != at);
        true
    }

    /// Asks one sentinel for the primary. Returns who has answered, too.
    async fn named_by(&self, at: Place) -> Result<(Place, Named), StoreError> {
        let mut sentinel = self.open(&at, Arc::new(drop)).await?;
        let vote = self.ask(&mut sentinel).await?;
        let refuse =
            |kind, why: String| Err(StoreError::new(sentinel.address.to_string(), kind, why));
        let name = &self.watched.name;
        let Some(primary) = vote.primary else {
            let why = format!("it knows no primary named {name}; SENTINEL MASTERS shows the names");
            return refuse(StoreErrorKind::Misconfigured, why);
        };
        let instead_of = self.seen().named_before(&at, Some(&primary));
        let named = Named {
            primary,
            instead_of,
        };
        if self.is_replaced(&named) {
            let why = "it names another server than most sentinels";
            return refuse(StoreErrorKind::Unavailable, why.to_owned());
        }
        Ok((at, named))
    }

    async fn open(&self, (host, port): &Place, listener: Listener) -> Result<Sentinel, StoreError> {
        let address = self.given.of_sentinel(host, *port);
        let dial = Dial {
            address: &address,
            limit: self.limit,
            clock: &self.clock,
            scripts: &Arc::default(),
            listener: &listener,
            placement: None,
        };
        let (link, wire) = dial.open().await?;
        Ok(Sentinel {
            address,
            link,
            wire,
        })
    }

    async fn ask(&self, sentinel: &mut Sentinel) -> Result<Vote, StoreError> {
        let name = self.watched.name.as_str();
        let mut questions = pipe();
        for question in [
            &["GET-MASTER-ADDR-BY-NAME", name][..],
            &["SENTINELS", name],
            &["MYID"],
        ] {
            questions.cmd("SENTINEL").arg(question);
        }
        let mut wire = sentinel.wire.clone();
        let asking = questions.ignore_errors().query_async(&mut wire);
        let answers: RedisResult<Vec<RedisResult<Value>>> = self.within(sentinel, asking).await?;
        let read = answers.and_then(read);
        read.map_err(|error| {
            let mut error = refusal(&sentinel.address, &error);
            if error.detail.to_lowercase().contains("unknown command") {
                let why =
                    "it is no sentinel; write redis://host:port/ for a server that none watches";
                (error.kind, error.detail) = (StoreErrorKind::Misconfigured, why.into());
            }
            error
        })
    }

    async fn within<T>(
        &self,
        sentinel: &mut Sentinel,
        asking: impl Future<Output = T>,
    ) -> Result<T, StoreError> {
        let answer = self
            .clock
            .within(self.limit, sentinel.link.until(asking))
            .await;
        let answer = answer.ok_or_else(|| silent(&sentinel.address, Some(self.limit)))?;
        answer.map_err(|ended| refusal(&sentinel.address, &ended))
    }

    /// Why no sentinel named a server: what each of them said, and the cause that waiting does not remove, if there is one.
    fn refused(&self, failed: &[StoreError]) -> StoreError {
        let lasting = failed.iter().find(|error| !error.kind.is_transient());
        let kind = lasting.or(failed.first()).map(|error| error.kind);
        // Most often, all say the same.
        let mut said: Vec<(String, &str)> = Vec::new();
        for error in failed {
            match said.iter_mut().find(|(_, detail)| *detail == error.detail) {
                Some((who, _)) => *who = format!("{who}, {}", error.store),
                None => said.push((error.store.clone(), &error.detail)),
            }
        }
        let said = said.iter().map(|(who, detail)| format!("{who}: {detail}"));
        let said = said.collect::<Vec<_>>().join("; ");
        let mut why = format!("no sentinel names the primary: {said}");
        if kind == Some(StoreErrorKind::Denied) {
            why += "; sentinel_user and sentinel_pass in the URL are their login";
        }
        let kind = kind.unwrap_or(StoreErrorKind::Unreachable);
        StoreError::new(self.given.to_string(), kind, why)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    /// The last server that this sentinel named before this one.
    fn named_before(&self, at: &Place, primary: Option<&Place>) -> Option<Place> {
        let last = self.votes.get(at)?;
        if last.primary.as_ref() == primary {
            last.before.clone()
        } else {
            last.primary.clone()
        }
    }
}

/// Reads the answers of a sentinel. It may refuse all but the first question.
fn read(answers: Vec<RedisResult<Value>>) -> Result<Vote, RedisError> {
    let mut answers = answers.into_iter();
    let mut next = || answers.next().unwrap_or(Ok(Value::Nil));
    let primary: Option<(String, String)> = from_redis_value(next()?)?;
    let others = next().ok().and_then(|others| from_redis_value(others).ok());
    let others: Vec<HashMap<String, String>> = others.unwrap_or_default();
    let other = |mut fields: HashMap<String, String>| {
        let mut field = |name| fields.remove(name).filter(|value| !value.is_empty());
        Some((
            field("runid")?,
            (field("ip")?, field("port")?.parse().ok()?),
        ))
    };
    Ok(Vote {
        id: next().ok().and_then(|id| from_redis_value(id).ok()),
        primary: primary.and_then(|(host, port)| Some((host, port.parse().ok()?))),
        before: None,
        others: others.into_iter().filter_map(other).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(port: u16) -> Place {
        ("h".to_owned(), port)
    }

    /// Three sentinels, of which the URL names so many.
    fn sentinels(given: usize) -> Sentinels {
        let hosts: Vec<String> = (1..=given).map(|port| format!("h:{port}")).collect();
        let url = format!("redis+sentinel://{}/main", hosts.join(","));
        let address = Address::parse(&url).unwrap();
        Sentinels::of(&address, &Clock::system(), LOOK_EVERY).unwrap()
    }

    /// What the sentinel at `at` tells, which knows these others.
    fn says(at: u16, primary: u16, others: &[u16]) -> Vote {
        let others = others.iter();
        Vote {
            id: Some(format!("id {at}")),
            primary: Some(place(primary)),
            before: None,
            others: others.map(|at| (format!("id {at}"), place(*at))).collect(),
        }
    }

    /// What the sentinel at `at` names.
    fn named(sentinels: &Sentinels, at: u16, primary: u16) -> Named {
        let primary = place(primary);
        Named {
            instead_of: sentinels.seen().named_before(&place(at), Some(&primary)),
            primary,
        }
    }

    /// A dial leads to the server that this sentinel names.
    fn uses(sentinels: &Sentinels, at: u16, primary: u16) {
        let named = named(sentinels, at, primary);
        sentinels.seen().in_use = Some(named);
    }

    fn is_replaced(sentinels: &Sentinels, at: u16, primary: u16) -> bool {
        sentinels.is_replaced(&named(sentinels, at, primary))
    }

    #[test]
    fn a_majority_of_all_known_sentinels_decides() {
        let three = sentinels(1);
        uses(&three, 1, 7);
        assert!(!three.learn(&place(1), says(1, 8, &[2, 3])));
        assert_eq!(three.seen().known, [place(1), place(2), place(3)]);
        assert!(!three.learn(&place(2), says(2, 7, &[1, 3])));
        assert!(three.learn(&place(3), says(3, 8, &[1, 2])), "two of three");
        assert!(is_replaced(&three, 2, 7) && !is_replaced(&three, 1, 8));
        uses(&three, 1, 8);
        // The same again is no news.
        assert!(!three.learn(&place(2), says(2, 8, &[1, 3])));
        // Back to the first.
        assert!(!three.learn(&place(2), says(2, 7, &[1, 3])));
        assert!(three.learn(&place(3), says(3, 7, &[1, 2])));
        assert!(!is_replaced(&three, 2, 7) && is_replaced(&three, 1, 8));
    }

    /// The first sentinel names the new primary before the others do.
    #[test]
    fn no_server_is_left_because_some_sentinels_are_behind() {
        let three = sentinels(3);
        for at in 1..=3 {
            assert!(!three.learn(&place(at), says(at, 7, &[])));
        }
        three.learn(&place(1), says(1, 8, &[]));
        uses(&three, 1, 8);
        assert!(!three.learn(&place(2), says(2, 7, &[])));
        assert!(!is_replaced(&three, 1, 8) && !three.has_left());
        assert!(!three.learn(&place(2), says(2, 8, &[])));
    }

    /// One sentinel is cut off together with the former primary, and a client that has never used that one reaches it first.
    #[test]
    fn no_server_is_dialed_that_one_sentinel_still_names() {
        let three = sentinels(3);
        three.learn(&place(2), says(2, 8, &[1, 3]));
        three.learn(&place(3), says(3, 8, &[1, 2]));
        assert!(is_replaced(&three, 1, 7), "it says so when it is asked");
        three.learn(&place(1), says(1, 7, &[2, 3]));
        assert!(is_replaced(&three, 1, 7) && !is_replaced(&three, 2, 8));
    }

    /// A client lost its connection to one sentinel of the majority, and asked the one that is behind.
    #[test]
    fn a_server_is_left_when_the_majority_is_heard_again() {
        let three = sentinels(3);
        for (at, primary) in [(1, 7), (2, 8), (3, 8)] {
            three.learn(&place(at), says(at, primary, &[]));
        }
        three.seen().votes.remove(&place(3));
        assert!(!is_replaced(&three, 1, 7), "two sentinels contradict");
        uses(&three, 1, 7);
        assert!(three.learn(&place(3), says(3, 8, &[])));
        assert!(three.has_left() && is_replaced(&three, 1, 7));
    }

    #[test]
    fn a_sentinel_with_two_addresses_has_one_vote() {
        let three = sentinels(1);
        uses(&three, 1, 7);
        three.learn(&place(1), says(1, 8, &[2, 3]));
        assert!(!three.learn(&place(9), says(1, 8, &[2, 3])));
        assert!(three.forgets(&place(9)) && !three.forgets(&place(1)));
        assert!(!three.forgets(&place(2)), "one names it");
        three.learn(&place(1), says(1, 8, &[3]));
        assert!(three.forgets(&place(2)), "it has gone");
        three.seen().votes.clear();
        assert!(!three.forgets(&place(3)), "it may be the only one left");
    }
}
