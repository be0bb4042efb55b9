//! The servers of a store, and which of them has a name: one server has all, and a node of a cluster those of its slots.
//!
//! A server that turns out to be a node of a cluster sends each step to the node that has its slot (`MOVED`). So a client works before it
//! knows the nodes, and also without permission to ask for them (`CLUSTER SLOTS`). The map of the slots only saves that detour.
//!
//! # Invariants
//!
//! - **M1** A step is at one server at a time: it goes on only after a node has refused it or broken it off, or before it was sent. Every
//!   step is safe to repeat.
//! - **M2** Where a slot is, the nodes decide. A map that is out of date costs time, and nothing else.
//! - **M3** A lease whose slot has another node is doubtful, and renewed at once (L4): a replica that took over may not know it.

use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold_core::{LockName, SLOTS, Step, slot};
use redis::{RedisResult, Value, cmd};
use tokio::sync::{Notify, watch};

use super::address::{Address, Place};
use super::connection::handshake::Seat;
use super::connection::link::Wire;
use super::connection::{Cluster, Connection, Part};
use super::fault::Redirect;
use super::pipeline::PendingReply;
use super::protocol::Detour;
use super::scripts::{Counters, NodeTerms, Scripts};
use super::slots::{self, Names, Told, beside};
use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::error::{Replaced, StoreError, StoreErrorKind};
use crate::store::contract::{Attach, Done, Listener, Notice, Scope};

/// How long a node may take to tell which node has which slot.
const TELLS_WITHIN: Duration = Duration::from_millis(500);

/// How often the map is made anew without a cause.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// The shortest pause between two looks, and the longest one while a node that has slots is out of reach.
const LOOK_PAUSE: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(500)];

/// How long the connection to a node without slots is kept.
const UNUSED_FOR: Duration = Duration::from_secs(60);

/// The first and the longest pause before a step whose keys are at two nodes is tried again.
const TRY_PAUSE: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(200)];

/// How often nodes may send a step to each other without a pause. If it happens more often, they contradict each other for now.
const QUICK_DETOURS: u32 = 4;

/// A server, and its connection.
pub(super) struct Server {
    pub(super) connection: Connection,
    /// A connection for the steps that replicas have to confirm: `WAIT` blocks it, and counts what came over it. It also hears of locks.
    pub(super) confirming: Option<Connection>,
    pub(super) scripts: Arc<Scripts>,
}

impl Server {
    /// Submits a step. The answer comes within `limit`.
    pub(super) fn send(&self, name: &LockName, step: Step, done: Done, limit: Duration) {
        self.carrier(&step).send(name, step, done, limit);
    }

    /// Submits looks, which leave together.
    pub(super) fn look(&self, looks: Vec<(LockName, Done)>, limit: Duration) {
        self.connection.look(looks, limit);
    }

    /// True if the client hears of its locks.
    pub(super) fn is_listening(&self) -> bool {
        let hearing = self.confirming.as_ref().unwrap_or(&self.connection);
        hearing.is_listening()
    }

    /// Submits a step that another server did not execute.
    fn push_on(&self, step: Step, waiting: PendingReply, detour: Detour) {
        let queue = self.carrier(&step).queue();
        queue.push_on(iter::once((step, waiting, detour)));
    }

    async fn ready(&self) -> Result<(), StoreError> {
        for connection in self.connections() {
            connection.ready().await?;
        }
        Ok(())
    }

    fn is_up(&self) -> bool {
        self.connections().all(|it| it.queue().is_up())
    }

    fn connections(&self) -> impl Iterator<Item = &Connection> {
        iter::once(&self.connection).chain(&self.confirming)
    }

    /// The connection that carries this step. A release that keeps the lock must not overtake a renewal, which would keep it for longer.
    fn carrier(&self, step: &Step) -> &Connection {
        match (&self.confirming, step) {
            (
                Some(confirming),
                Step::Acquire { .. } | Step::Extend { .. } | Step::Release { keep: Some(_), .. },
            ) => confirming,
            _ => &self.connection,
        }
    }
}

/// The servers of a store.
pub(super) struct Servers {
    given: Address,
    attach: Attach,
    this: Weak<Self>,
    is_cluster: AtomicBool,
    map: RwLock<Map>,
    /// The map may be out of date.
    stale: Arc<Notify>,
    /// How many maps were made.
    looked: watch::Sender<usize>,
}

struct Map {
    /// The first one also has the steps of a store that is no cluster. A number that is free may be used again.
    servers: Vec<Option<Known>>,
    /// The number of the server that has this slot; empty before the first node has told.
    owners: Vec<u16>,
    /// The last answer to `CLUSTER SLOTS`.
    told: Told,
    /// From the same answer.
    names: Names,
}

impl Map {
    /// The number of the server at this place.
    fn number_at(&self, place: Option<&Place>) -> Option<usize> {
        let is_there = |known: &Option<Known>| {
            let known = known.as_ref();
            known.is_some_and(|known| known.place.as_ref() == place)
        };
        self.servers.iter().position(is_there)
    }

    /// The place of a node that another one names.
    fn named(&self, place: Place) -> Place {
        self.names.get(&place).cloned().unwrap_or(place)
    }
}

/// A server in the map.
struct Known {
    /// `None` for a socket.
    place: Option<Place>,
    server: Arc<Server>,
    /// Since when it has no slot.
    unused_since: Option<Moment>,
}

impl Servers {
    /// Begins to connect. A node of a quorum is a server of its own.
    pub(super) fn open(
        given: Address,
        attach: Attach,
        node: Option<(NodeTerms, Seat)>,
    ) -> Arc<Self> {
        let servers = Arc::new_cyclic(|this: &Weak<Self>| Self {
            given,
            attach,
            this: this.clone(),
            is_cluster: AtomicBool::new(false),
            map: RwLock::new(Map {
                servers: Vec::new(),
                owners: Vec::new(),
                told: Told::new(),
                names: Names::new(),
            }),
            stale: Arc::default(),
            looked: watch::Sender::new(0),
        });
        // Not before it can be found by them.
        let mut map = servers.write();
        let place = servers.given.place();
        let first = match &place {
            Some((host, port)) if servers.given.is_cluster => servers.given.of_node(host, *port),
            _ => servers.given.clone(),
        };
        map.servers.push(Some(Known {
            place,
            server: servers.connect(first, node),
            unused_since: None,
        }));
        for place in servers.given.seeds.clone() {
            servers.number_of(&mut map, place);
        }
        drop(map);
        servers
    }

    /// Waits until a server can be used and, in a cluster, until the nodes have told which of them has which slot.
    pub(super) async fn ready(&self) -> Result<(), StoreError> {
        let mut looked = self.looked.subscribe();
        let servers = self.all();
        let connecting = servers.iter().map(|server| server.ready());
        let mut connecting: FuturesUnordered<_> = connecting.collect();
        let mut ready = match connecting.next().await {
            Some(answer) => answer,
            None => Ok(()),
        };
        while ready.is_err()
            && let Some(answer) = connecting.next().await
        {
            // A cause that waiting does not remove says most.
            let lasts = ready
                .as_ref()
                .is_err_and(|known| !known.kind.is_transient());
            if answer.is_ok() || !lasts {
                ready = answer;
            }
        }
        ready?;
        if !self.is_cluster() {
            if self.given.is_cluster {
                return Err(is_alone(&self.given));
            }
            return Ok(());
        }
        let told = looked.wait_for(|looked| *looked > 0);
        drop(self.attach.clock.within(self.attach.limit, told).await);
        Ok(())
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.is_cluster.load(Ordering::Relaxed)
    }

    /// The server that has this key.
    pub(super) fn of(&self, key: &str) -> Arc<Server> {
        let map = self.read();
        let owner = match &*map.owners {
            [] => 0,
            owners => owners[usize::from(slot(key))],
        };
        let owner = map.servers.get(usize::from(owner));
        // There is one always: what has a slot is not given up, nor is the last one.
        let any = || map.servers.iter().flatten().next();
        let known = owner.and_then(Option::as_ref).or_else(any);
        let server = known.map(|known| known.server.clone());
        drop(map);
        server.unwrap_or_else(|| self.connect(self.given.clone(), None))
    }

    /// Where the server is that has this key, as far as it is known.
    fn place_of(&self, key: &str) -> Option<Place> {
        let map = self.read();
        let owner = map.owners.get(usize::from(slot(key)));
        let owner = owner.and_then(|owner| map.servers[usize::from(*owner)].as_ref());
        owner.and_then(|known| known.place.clone())
    }

    /// All servers.
    fn all(&self) -> Vec<Arc<Server>> {
        let map = self.read();
        let known = map.servers.iter().flatten();
        known.map(|known| known.server.clone()).collect()
    }

    /// The names of the nodes of a cluster by their numbers; that of a free number is empty.
    pub(super) fn labels(&self) -> Vec<String> {
        if !self.is_cluster() {
            return Vec::new();
        }
        let label = |known: &Option<Known>| {
            let label = known.as_ref().map(|known| known.server.connection.label());
            label.unwrap_or_default().to_owned()
        };
        self.read().servers.iter().map(label).collect()
    }

    /// The number of the server at this place, as far as it is known.
    fn number_at(&self, place: Option<&Place>) -> usize {
        self.read().number_at(place).unwrap_or(usize::MAX)
    }

    /// True if this client hears of the waiters of other clients, whatever the lock.
    pub(super) fn are_listening(&self) -> bool {
        let map = self.read();
        let mut known = map.servers.iter().flatten();
        known.all(|known| known.unused_since.is_some() || known.server.is_listening())
    }

    /// Sends a call to the server that has this key, and goes where that one says, within `limit`.
    pub(super) async fn call<T, F: Future<Output = RedisResult<T>>>(
        &self,
        key: &str,
        limit: Duration,
        request: impl Fn(Arc<Server>, Wire) -> F,
    ) -> Result<T, StoreError> {
        let clock = &self.attach.clock;
        let until = clock.now().after(limit);
        let left = || until.since(clock.now());
        let (mut server, mut way, mut detours) = (self.of(key), Detour::default(), 0);
        loop {
            let mut redirect = None;
            let ask = async |wire: Wire| {
                let answer = request(server.clone(), wire.asking(way.asking)).await;
                redirect = answer.as_ref().err().and_then(Redirect::of);
                answer
            };
            let answer = server.connection.call(left(), ask).await;
            let Some(redirect) = redirect else {
                return answer;
            };
            detours += 1;
            let from = server.connection.address();
            let next = next(&redirect, detours, left(), way, false);
            let there = self.heed(from, &redirect);
            match next {
                Next::Now(onward) => way = onward,
                Next::Later(pause, onward) => {
                    way = onward;
                    clock.sleep(pause).await;
                }
                Next::Fail => return Err(no_time(from, &redirect)),
            }
            server = there.unwrap_or_else(|| self.of(key));
        }
    }

    /// Learns from where a node sends a request. Returns the server that it names.
    fn heed(&self, from: &Address, redirect: &Redirect) -> Option<Arc<Server>> {
        match redirect {
            Redirect::Moved { slot, to } => Some(self.moved(from, *slot, to.clone())),
            Redirect::Ask { to } => Some(self.at(from, to.clone())),
            Redirect::TryAgain | Redirect::Down => {
                self.stale.notify_one();
                None
            }
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Map> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(&self, mut address: Address, node: Option<(NodeTerms, Seat)>) -> Arc<Server> {
        let (counters, seat) = match node {
            Some((terms, seat)) => (Counters::ByBucket(terms), Some(seat)),
            None => (Counters::Shared, None),
        };
        let scripts = Arc::new(Scripts::new(counters));
        let part = |seat: Option<Seat>| {
            let cluster = || Part::Cluster(self.this.clone());
            seat.map_or_else(cluster, Part::Quorum)
        };
        let (this, listener, place) = (
            self.this.clone(),
            self.attach.listener.clone(),
            address.place(),
        );
        let listener = Arc::new(move |notice| {
            let servers = this.upgrade().filter(|servers| servers.is_cluster());
            listener(match (notice, servers) {
                // Another one keeps the locks of this node.
                (Notice::Replaced(how, _), Some(servers)) => {
                    let slots = servers.slots_of(place.as_ref());
                    Notice::Replaced(how, slots)
                }
                (Notice::Cut { why, .. }, Some(servers)) => Notice::Cut {
                    node: servers.number_at(place.as_ref()),
                    why,
                },
                (Notice::Reconnected { .. }, Some(servers)) => Notice::Reconnected {
                    node: servers.number_at(place.as_ref()),
                },
                // It was sent before another node got the slot, which may not know of it: the waiter has to ask (L4).
                (Notice::Granted { key, wake }, Some(servers))
                    if servers.place_of(&key) != place =>
                {
                    let wake = wake.without_fence();
                    Notice::Granted { key, wake }
                }
                // A slot has left this node, maybe since a replica took over.
                (Notice::Missed, Some(servers)) => {
                    servers.stale.notify_one();
                    Notice::Missed
                }
                (notice, _) => notice,
            });
        });
        let mut attach = Attach {
            listener,
            ..self.attach.clone()
        };
        let confirmed = address.replicas.is_some().then(|| address.clone());
        address.replicas = None;
        let confirming = confirmed.map(|address| {
            let attach = Attach {
                listener: without_fences(attach.listener.clone()),
                ..attach.clone()
            };
            Connection::open(address, attach, scripts.clone(), part(None))
        });
        if confirming.is_some() {
            attach.listener = without_locks(attach.listener);
        }
        Arc::new(Server {
            connection: Connection::open(address, attach, scripts.clone(), part(seat)),
            confirming,
            scripts,
        })
    }

    /// The slots of the server at this place, as far as it is known which ones it has.
    fn slots_of(&self, place: Option<&Place>) -> Scope {
        let map = self.read();
        let ranges = map.told.iter();
        let ranges = ranges.filter(|(_, range)| Some(&range.primary) == place);
        let slots: Vec<_> = ranges.map(|(first, range)| *first..=range.last).collect();
        if slots.is_empty() {
            return Scope::All;
        }
        Scope::Slots(slots.into())
    }

    /// The number of the server at this place. A cluster has far fewer nodes than slots. To begin a connection to a new one only starts tasks,
    /// and calls nothing that reads the map.
    fn number_of(&self, map: &mut Map, place: Place) -> u16 {
        if let Some(number) = map.number_at(Some(&place)) {
            return u16::try_from(number).unwrap_or_default();
        }
        let (host, port) = &place;
        let known = Known {
            server: self.connect(self.given.of_node(host, *port), None),
            place: Some(place),
            unused_since: Some(self.attach.clock.now()),
        };
        let free = map.servers.iter().position(Option::is_none);
        let number = free.unwrap_or(map.servers.len());
        if free.is_none() {
            map.servers.push(None);
        }
        map.servers[number] = Some(known);
        u16::try_from(number).unwrap_or_default()
    }

    /// The server at this place, as the server `from` says; without a host, at another port of the same host.
    fn at(&self, from: &Address, place: Place) -> Arc<Server> {
        let mut map = self.write();
        let place = map.named(beside(from, place));
        let number = self.number_of(&mut map, place);
        server_with(&map, number)
    }

    /// A node says that this slot is at another one.
    fn moved(&self, from: &Address, slot: u16, to: Place) -> Arc<Server> {
        let mut map = self.write();
        let to = map.named(beside(from, to));
        let number = self.number_of(&mut map, to);
        if let Some(owner) = map.owners.get_mut(usize::from(slot)) {
            *owner = number;
        }
        self.stale.notify_one();
        server_with(&map, number)
    }

    /// Asks the nodes, one after the other, which of them has which slot.
    async fn look(&self) -> bool {
        let mut servers = self.all();
        // Another one first each time, since one may be wrong.
        let turn = *self.looked.borrow() % servers.len().max(1);
        servers.rotate_left(turn);
        servers.sort_by_key(|server| !server.is_up());
        for server in servers {
            let ask =
                async |mut wire: Wire| cmd("CLUSTER").arg("SLOTS").query_async(&mut wire).await;
            let told: Result<Value, _> = server.connection.call(TELLS_WITHIN, ask).await;
            let from = server.connection.address();
            match told.map(|told| slots::read(&told, from)) {
                Ok(Some((told, names))) if !told.is_empty() => self.learn(told, names),
                // The detours remain.
                Err(error) if error.kind == StoreErrorKind::Denied => self.avoid_silent(),
                _ => continue,
            }
            self.looked.send_modify(|looked| *looked += 1);
            return true;
        }
        // All may have other addresses now, to which the URL leads.
        let mut map = self.write();
        for place in self.given.place().iter().chain(&self.given.seeds) {
            self.number_of(&mut map, place.clone());
        }
        false
    }

    /// This user may not ask. So a node that answers gets the slots of those that do not, until it says where they are.
    fn avoid_silent(&self) {
        let mut guard = self.write();
        let Map {
            servers, owners, ..
        } = &mut *guard;
        let is_up = |known: &Option<Known>| known.as_ref().is_some_and(|it| it.server.is_up());
        let is_up: Vec<bool> = servers.iter().map(is_up).collect();
        let Some(up) = is_up.iter().position(|is_up| *is_up) else {
            return;
        };
        let up = u16::try_from(up).unwrap_or_default();
        owners.resize(usize::from(SLOTS), up);
        for owner in owners
            .iter_mut()
            .filter(|owner| !is_up[usize::from(**owner)])
        {
            *owner = up;
        }
    }

    /// Makes the map anew.
    fn learn(&self, told: Told, names: Names) {
        let now = self.attach.clock.now();
        let mut guard = self.write();
        let map = &mut *guard;
        let mut owners = vec![0; usize::from(SLOTS)];
        let mut has_slots = vec![false; map.servers.len()];
        for (first, range) in &told {
            let number = self.number_of(map, range.primary.clone());
            has_slots.resize(map.servers.len(), false);
            has_slots[usize::from(number)] = true;
            owners[usize::from(*first)..=usize::from(range.last)].fill(number);
        }
        let changed = slots::changed(&map.told, &told);
        (map.owners, map.told, map.names) = (owners, told, names);
        let (mut homeless, mut gone) = (Vec::new(), Vec::new());
        for (slot, has_slots) in map.servers.iter_mut().zip(has_slots) {
            let Some(known) = slot.as_mut() else {
                continue;
            };
            if has_slots {
                known.unused_since = None;
                continue;
            }
            let since = *known.unused_since.get_or_insert(now);
            for connection in known.server.connections() {
                let queue = connection.queue();
                // What was not sent goes to the node that has the slot now.
                homeless.extend(queue.take_back());
                if since == now {
                    // A replica may have taken over because it is silent.
                    queue.report_silent();
                }
            }
            if now.since(since) >= UNUSED_FOR {
                gone.extend(slot.take());
            }
        }
        drop(guard);
        drop(gone);
        let has_changed = !changed.is_empty();
        if has_changed {
            // (M3)
            let replaced = Notice::Replaced(Replaced::Slot, Scope::Slots(changed));
            (self.attach.listener)(replaced);
        }
        for (step, waiting) in homeless {
            let server = self.of(waiting.name.key());
            server.push_on(step, waiting, Detour::default());
        }
        if has_changed {
            // As after a new connection to another server: the first notice is about leases, this one about all who wait for the store.
            (self.attach.listener)(Notice::Missed);
        }
    }

    /// True if a server that has slots is out of reach.
    fn is_one_down(&self) -> bool {
        let map = self.read();
        let mut known = map.servers.iter().flatten();
        known.any(|known| known.unused_since.is_none() && !known.server.is_up())
    }
}

impl Cluster for Servers {
    fn follow(
        &self,
        from: &Address,
        redirect: Redirect,
        step: Step,
        way: Detour,
        mut waiting: PendingReply,
    ) {
        if waiting.is_answered() {
            // Its time limit has passed, and who asked may have undone it meanwhile.
            return;
        }
        waiting.detours += 1;
        let left = waiting.left(self.attach.clock.now());
        let next = next(&redirect, waiting.detours, left, way, is_settle(&step));
        let there = self.heed(from, &redirect);
        let go = |servers: &Self, step, waiting: PendingReply, way| {
            let server = there.unwrap_or_else(|| servers.of(waiting.name.key()));
            server.push_on(step, waiting, way);
        };
        match next {
            Next::Now(way) => go(self, step, waiting, way),
            Next::Later(pause, way) => {
                let (servers, clock) = (self.this.clone(), self.attach.clock.clone());
                self.attach.tasks.spawn_aside(async move {
                    clock.sleep(pause).await;
                    if let Some(servers) = servers.upgrade() {
                        go(&servers, step, waiting, way);
                    }
                });
            }
            Next::Fail => waiting.fail(no_time(from, &redirect)),
        }
    }

    fn look_again(&self, is_cluster: bool) {
        if is_cluster && !self.is_cluster.swap(true, Ordering::Relaxed) {
            let keep = keep(self.this.clone(), self.stale.clone(), self.attach.clone());
            self.attach.tasks.spawn_aside(keep);
        }
        if self.is_cluster() {
            self.stale.notify_one();
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stale.notify_one();
    }
}

/// Makes the map anew when it may be out of date, until the store is gone.
async fn keep(servers: Weak<Servers>, stale: Arc<Notify>, Attach { clock, .. }: Attach) {
    let [shortest, longest] = LOOK_PAUSE;
    let mut pause = Backoff::new(shortest, longest);
    loop {
        let _ = clock.within(LOOK_EVERY, stale.notified()).await;
        let Some(servers) = servers.upgrade() else {
            return;
        };
        if !servers.look().await || servers.is_one_down() {
            stale.notify_one();
        } else {
            pause.reset();
        }
        drop(servers);
        clock.sleep(pause.pause()).await;
    }
}

/// A server that the map has just named.
fn server_with(map: &Map, number: u16) -> Arc<Server> {
    let known = map.servers[usize::from(number)].as_ref();
    known.expect("it was put there").server.clone()
}

/// The error for a server that the URL takes for a node of a cluster.
pub(super) fn is_alone(given: &Address) -> StoreError {
    let why = "it is no node of a cluster; write redis:// for a single server";
    StoreError::new(given.to_string(), StoreErrorKind::Misconfigured, why)
}

/// The listener of a connection whose grants count once replicas have confirmed them: no replica has confirmed what a message says, so
/// a waiter claims its lock.
fn without_fences(listener: Listener) -> Listener {
    Arc::new(move |notice| {
        listener(match notice {
            Notice::Granted { key, wake } => {
                let wake = wake.without_fence();
                Notice::Granted { key, wake }
            }
            notice => notice,
        });
    })
}

/// The listener of a connection beside one that hears of locks already.
fn without_locks(listener: Listener) -> Listener {
    Arc::new(move |notice| match notice {
        Notice::Granted { .. } | Notice::Wanted { .. } | Notice::First { .. } => {}
        notice => listener(notice),
    })
}

/// True for a step that one key is enough for.
const fn is_settle(step: &Step) -> bool {
    matches!(
        step,
        Step::Extend { fence: Some(_), .. } | Step::Release { fence: Some(_), .. }
    )
}

/// What follows when a node does not execute a request.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// It is sent in this way to the server that the node names, else to the one that has its key.
    Now(Detour),
    /// The same after a pause.
    Later(Duration, Detour),
    /// There is no time left.
    Fail,
}

/// Decides what follows when a node does not execute a request that was sent in this way. `detours`: how often that has happened to it.
/// `left`: its time. `settles`: it is a step that the key of its lock is enough for.
fn next(redirect: &Redirect, detours: u32, left: Duration, sent: Detour, settles: bool) -> Next {
    let (is_quick, alone) = match redirect {
        Redirect::Moved { .. } => (detours <= QUICK_DETOURS, false),
        Redirect::Ask { .. } => (detours <= QUICK_DETOURS, settles),
        Redirect::TryAgain if !sent.alone => (settles, settles),
        // The node that takes the slot lacks the key of the lock, so the owner has it. In Redis 6.2, the owner had sent the step there as it
        // lacks another key.
        Redirect::TryAgain => (false, sent.asking),
        Redirect::Down => (false, false),
    };
    let asking = matches!(redirect, Redirect::Ask { .. });
    let way = Detour { asking, alone };
    if is_quick && !left.is_zero() {
        return Next::Now(way);
    }
    let [first, longest] = TRY_PAUSE;
    let pause = (first * detours.min(10)).min(longest);
    // It has as long for the answer, so that the cause is told and not that there was none.
    if pause * 2 < left {
        Next::Later(pause, way)
    } else {
        Next::Fail
    }
}

/// The error for a request that could not be executed in time.
fn no_time(from: &Address, redirect: &Redirect) -> StoreError {
    let unavailable = StoreErrorKind::Unavailable;
    StoreError::new(from.to_string(), unavailable, redirect.describe())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Detour = Detour {
        asking: false,
        alone: false,
    };
    const ALONE: Detour = Detour {
        asking: false,
        alone: true,
    };
    const ASKING: Detour = Detour {
        asking: true,
        alone: false,
    };
    const ASKING_ALONE: Detour = Detour {
        asking: true,
        alone: true,
    };
    const LEFT: Duration = Duration::from_secs(1);

    fn there() -> Place {
        ("there".into(), 6379)
    }

    fn later(ms: u64, way: Detour) -> Next {
        Next::Later(Duration::from_millis(ms), way)
    }

    /// What follows each of these refusals, one after the other, of one request.
    fn after(settles: bool, refusals: &[Redirect]) -> Vec<Next> {
        let mut way = Detour::default();
        let refusals = (1..).zip(refusals);
        let follows = refusals.map(|(detours, redirect)| {
            let next = next(redirect, detours, LEFT, way, settles);
            if let Next::Now(onward) | Next::Later(_, onward) = next {
                way = onward;
            }
            next
        });
        follows.collect()
    }

    #[test]
    fn a_settlement_goes_on_by_the_key_of_its_lock() {
        use Redirect::{Ask, TryAgain};

        let ask = || Ask { to: there() };
        // Redis 7: its owner has some of the keys, and then not that one.
        assert_eq!(
            after(true, &[TryAgain, ask()]),
            [Next::Now(ALONE), Next::Now(ASKING_ALONE)]
        );
        // Redis 6.2: its owner lacks another key than that one.
        assert_eq!(
            after(true, &[ask(), TryAgain]),
            [Next::Now(ASKING_ALONE), later(40, ALONE)]
        );
        // Nor does that help: somebody else holds the lock.
        let refusals = [TryAgain, TryAgain, TryAgain, TryAgain, TryAgain, TryAgain];
        assert_eq!(
            after(true, &refusals),
            [
                Next::Now(ALONE),
                later(40, HERE),
                Next::Now(ALONE),
                later(80, HERE),
                Next::Now(ALONE),
                later(120, HERE)
            ]
        );
    }

    #[test]
    fn a_request_for_several_keys_waits_until_one_node_has_them() {
        use Redirect::{Ask, Down, TryAgain};

        let ask = Ask { to: there() };
        assert_eq!(
            after(false, &[TryAgain, Down, ask, TryAgain]),
            [
                later(20, HERE),
                later(40, HERE),
                Next::Now(ASKING),
                later(80, HERE)
            ]
        );
    }

    #[test]
    fn nodes_that_contradict_each_other_are_given_time() {
        let elsewhere = |_| Redirect::Moved {
            slot: 1,
            to: there(),
        };
        let moves: Vec<_> = (0..12).map(elsewhere).collect();
        for settles in [false, true] {
            let mut follows = after(settles, &moves);
            let then = follows.split_off(4);
            assert!(follows.iter().all(|next| *next == Next::Now(HERE)));
            let pauses = [100, 120, 140, 160, 180, 200, 200, 200];
            assert_eq!(then, pauses.map(|ms| later(ms, HERE)));
        }
    }

    #[test]
    fn a_request_whose_time_ends_before_it_is_tried_again_fails() {
        let by =
            |redirect: &Redirect, left| next(redirect, 1, Duration::from_millis(left), HERE, false);
        assert_eq!(by(&Redirect::Down, 41), later(20, HERE));
        assert_eq!(by(&Redirect::Down, 40), Next::Fail);
        let ask = Redirect::Ask { to: there() };
        assert_eq!(by(&ask, 1), Next::Now(ASKING));
        assert_eq!(by(&ask, 0), Next::Fail);
    }
}
