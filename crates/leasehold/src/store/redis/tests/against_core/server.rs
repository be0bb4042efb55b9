//! The side of Redis: a real server whose clock the test controls, used through the production scripts and codec.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::quorum::{Mark, QuorumTerms};
use leasehold_core::{
    Block, Counter, Fence, Fences, Foreign, Holder, LockName, LockState, Mode, Outcome, Owner,
    Reply, Slots, Step, Ttl, Waiter,
};
use redis::{RedisError, RedisResult};

use super::model::{Memory, Role, channel, sort, terms, terms_of, wants};
use super::steps::{FOREIGN_VALUES, Intrusion, LOST};
use crate::store::redis::cluster::Server;
use crate::store::redis::connection::handshake::Seat;
use crate::store::redis::connection::link::Wire;
use crate::store::redis::protocol::{COUNTER, Contended, Kind, MARK, counter_of};
use crate::store::redis::scripts::{Counters, NodeTerms, Scripts};
use crate::store::redis::tests::{Scene, connect};

/// The data that Redis stores for a lock.
#[derive(Debug, PartialEq)]
pub(super) struct Kept {
    /// Translated to core's types.
    pub(super) state: LockState,
    /// How long the queue lasts, if there is one.
    pub(super) queue_for_ms: Option<u64>,
}

/// The messages of a step in their order, each with its channel.
pub(super) fn messages_of(outcome: &Outcome, name: &LockName) -> Vec<(String, String)> {
    let to = |owner: &Owner, payload: String| {
        let channel = format!("leasehold:wake:{}", owner.client());
        (
            channel,
            format!("{payload}{} {}", owner.token(), name.key()),
        )
    };
    let granted = outcome.wakes.iter().map(|wake| {
        let (fence, at_us, queued) = (wake.fence.unwrap(), wake.at_us, wake.queued);
        let more = match wake.block.get() {
            1 => String::new(),
            more => format!("/{more}"),
        };
        let verb = match wake.slot {
            Some(slot) => format!("slot {slot}"),
            None => "granted".into(),
        };
        to(
            &wake.owner,
            format!("{verb} {fence}{more} {at_us} {queued} "),
        )
    });
    let wanted = (outcome.wanted.iter()).map(|owner| to(owner, "wanted ".into()));
    let first = (outcome.first.iter()).map(|owner| to(owner, "first ".into()));
    granted.chain(wanted).chain(first).collect()
}

pub(super) struct Redis {
    pub(super) role: Role,
    /// The store of clients that count the nodes of another quorum, and its connection.
    others: (Server, Wire),
    pub(super) scene: Scene,
    requests: usize,
}

/// The scripts for such clients, and the seat of the server.
fn of_node(role: Role, others: bool) -> (Counters, Option<Seat>) {
    match role {
        Role::Alone => (Counters::Shared, None),
        Role::Node => {
            let (terms, durable) = (terms_of(others), true);
            let seat = Seat::new(Arc::default(), "the server");
            (Counters::ByBucket(NodeTerms { terms, durable }), Some(seat))
        }
    }
}

impl Redis {
    pub(super) fn start() -> Self {
        Self::start_with(Role::Alone, Scripts::new)
    }

    /// With these scripts, which may be broken.
    pub(super) fn start_with(role: Role, scripts: impl Fn(Counters) -> Scripts) -> Self {
        Self::start_on(None, role, scripts)
    }

    /// Another program than the installed server, if one is named.
    pub(super) fn start_on(
        binary: Option<&Path>,
        role: Role,
        scripts: impl Fn(Counters) -> Scripts,
    ) -> Self {
        let (counters, seat) = of_node(role, false);
        let scene = Scene::on(binary, scripts(counters), seat);
        let (counters, seat) = of_node(role, true);
        Self {
            others: connect(&scene.server, &scene.runtime, scripts(counters), seat),
            role,
            scene,
            requests: 0,
        }
    }

    /// Resets the server to an empty one, started at `clock_us`, with the first two clients subscribed.
    pub(super) fn reset(&mut self, clock_us: u64) {
        self.scene.reset(clock_us);
        if self.role == Role::Node {
            // It is a node of a new quorum.
            let QuorumTerms { nodes, longest_ttl } = terms();
            let info = self.command(&["INFO", "server"]).text();
            let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
            let start = &run_id.unwrap()[..16];
            let mark = format!("{nodes} {} 0 {start}", longest_ttl.millis());
            self.command(&["SET", MARK, &mark]);
        }
        self.requests = 0;
        self.scene.listen("SUBSCRIBE", &[channel(0), channel(1)]);
    }

    /// The form of the next steps: the short one if there is one, and the long one each third time.
    pub(super) fn kind(&mut self, steps: &[(LockName, Step)]) -> Kind {
        self.requests += 1;
        let kinds = || (steps.iter()).map(|(name, step)| Contended::default().kind(name, step));
        let kind = kinds().next().unwrap();
        if self.requests.is_multiple_of(3) || kinds().any(|other| other != kind) {
            kind.long()
        } else {
            kind
        }
    }

    /// Sends steps in one request and returns the replies in readable form.
    pub(super) fn apply(
        &mut self,
        steps: &[(LockName, Step)],
    ) -> Result<Vec<Result<Reply, String>>, String> {
        let kind = self.kind(steps);
        self.apply_as(kind, steps, false)
    }

    /// Sends steps in this form, maybe as a client of another quorum, and returns the replies in readable form.
    pub(super) fn apply_as(
        &mut self,
        kind: Kind,
        steps: &[(LockName, Step)],
        others: bool,
    ) -> Result<Vec<Result<Reply, String>>, String> {
        let said = |error: RedisError| error.to_string();
        let replies = self.batch_by(others, kind, steps).map_err(said)?;
        let replies = replies.into_iter().map(|reply| reply.map_err(said));
        Ok(replies.collect())
    }

    /// Sends steps as a store does, but for any client (that of the first acquire), and without a time limit.
    pub(super) fn batch(
        &mut self,
        kind: Kind,
        steps: &[(LockName, Step)],
    ) -> RedisResult<Vec<RedisResult<Reply>>> {
        self.batch_by(false, kind, steps)
    }

    fn batch_by(
        &mut self,
        others: bool,
        kind: Kind,
        steps: &[(LockName, Step)],
    ) -> RedisResult<Vec<RedisResult<Reply>>> {
        let (scripts, wire) = if others {
            (&self.others.0.scripts, &self.others.1)
        } else {
            (&self.scene.scripts, &self.scene.wire)
        };
        let channel = wants(&steps[0].1).map(|owner| format!("leasehold:wake:{}", owner.client()));
        let channel = channel.unwrap_or_default();
        let answered = wire.run_batch(scripts, &channel, kind, steps.to_vec());
        self.scene.runtime.block_on(answered)
    }

    pub(super) fn command(&mut self, words: &[&str]) -> testkit::Reply {
        self.scene.command(words)
    }

    pub(super) fn intrude(&mut self, name: &LockName, intrusion: Intrusion) {
        let ttl;
        let mut words: Vec<&[u8]> = match intrusion {
            Intrusion::SetNxPx { value, ttl_ms } => {
                ttl = ttl_ms.to_string();
                vec![b"SET", FOREIGN_VALUES[value], b"NX", b"PX", ttl.as_bytes()]
            }
            Intrusion::Set { value } => vec![b"SET", FOREIGN_VALUES[value]],
            Intrusion::Del => vec![b"DEL"],
            Intrusion::HashSet => vec![b"HSET", b"field", b"1"],
            Intrusion::SortedSetAdd => vec![b"ZADD", b"1", b"member"],
        };
        words.insert(1, name.key().as_bytes());
        // The answer does not matter: Redis refuses it if a key of another type is in the way.
        self.scene.command(&words);
    }

    /// Evicts the counters, or makes them a value that counts as lost, which depends on the place in the sequence. A node without a mark
    /// has none: the terms in their names are those of the mark that the next client makes.
    pub(super) fn lose_counters(&mut self, names: &[LockName]) -> Option<&'static str> {
        let has_counters = self.role == Role::Alone || self.mark_of().unwrap().is_some();
        let value = LOST[self.requests % LOST.len()].filter(|_| has_counters);
        for key in self.counter_keys(names).unwrap() {
            match value {
                None => self.command(&["DEL", &key]),
                Some(value) => self.command(&["SET", &key, value]),
            };
        }
        value
    }

    pub(super) fn listen(&mut self, client: usize, on: bool) {
        let verb = if on { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
        self.scene.listen(verb, &[channel(client)]);
    }

    /// Drops those of several holders that have expired, as the next step would. Core has dropped them. If the clock is set back before that
    /// step, they would hold again; and their marker may last for a millisecond more, which another program would find.
    pub(super) fn drop_expired(&mut self, names: &[LockName], now_ms: u64) {
        let expired = format!("(-{now_ms}");
        for name in names {
            let (queue, waiters) = (name.beside(":lh-queue"), name.beside(":lh-waiters"));
            let gone = self.command(&["ZRANGEBYSCORE", &queue, &expired, "(0"]);
            for token in gone.array() {
                self.command(&["HDEL", &waiters, &token.text()]);
            }
            self.command(&["ZREMRANGEBYSCORE", &queue, &expired, "(0"]);
            let held = self.command(&["ZCOUNT", &queue, "-inf", "(0"]).int() > 0;
            if !held && self.command(&["TYPE", name.key()]).text() == "string" {
                let value = self.command(&["GET", name.key()]);
                let text = String::from_utf8_lossy(value.bytes()).into_owned();
                if Marker::read(&text).is_some() {
                    self.command(&["DEL", name.key()]);
                }
            }
        }
    }

    /// Reads the keys of all locks and the counter back, and checks that there is no other key.
    pub(super) fn kept(
        &mut self,
        names: &[LockName],
        now_ms: u64,
    ) -> Result<(Vec<Kept>, Memory), String> {
        let of = |name| self.kept_of(name, now_ms);
        let all: Vec<Kept> = names.iter().map(of).collect::<Result<_, _>>()?;
        let (memory, mut expected) = self.memory(names)?;
        for name in names {
            let keys = [
                name.key().to_owned(),
                name.beside(":lh-queue"),
                name.beside(":lh-waiters"),
            ];
            let [name, queue, waiters] = &keys;
            expected += self.command(&["EXISTS", name, queue, waiters]).int();
        }
        let keys = self.command(&["DBSIZE"]);
        if keys.int() != expected {
            return Err(format!("{} keys are left, {expected} expected", keys.int()));
        }
        Ok((all, memory))
    }

    pub(super) fn kept_of(&mut self, name: &LockName, now_ms: u64) -> Result<Kept, String> {
        let key = name.key().to_owned();
        let (queue, waiters) = (name.beside(":lh-queue"), name.beside(":lh-waiters"));
        let replies = self.scene.commands(&[
            &["TYPE", &key],
            &["GET", &key],
            &["PTTL", &key],
            &["ZRANGE", &queue, "0", "-1", "WITHSCORES"],
            &["HGETALL", &waiters],
            &["PTTL", &queue],
            &["PTTL", &waiters],
        ]);
        let [kind, value, lease, queue, waiters, queue_for, waiters_for] = &replies[..] else {
            unreachable!("seven commands")
        };
        // PTTL: -1 is without end, -2 is a missing key.
        let left = |pttl: &testkit::Reply| u64::try_from(pttl.int()).ok();
        let (mut state, mut is_marked, mut several) = (LockState::default(), true, None);
        let kind = kind.text();
        if kind != "none" {
            let value = if kind == "string" {
                value.bytes().to_vec()
            } else {
                Vec::new()
            };
            let expires_at_ms = left(lease).map(|left| now_ms + left);
            let text = std::str::from_utf8(&value).ok();
            several = text.and_then(Marker::read);
            match text.and_then(holder) {
                Some((owner, fences, has_waiters)) => {
                    is_marked = has_waiters;
                    state.holders.push(Holder {
                        owner,
                        mode: Mode::Exclusive,
                        fences,
                        slot: None,
                        vote: None,
                        expires_at_ms: expires_at_ms.ok_or("a holder of ours without a TTL")?,
                        kept: false,
                    });
                }
                None if several.is_some_and(|marker| self.role.has(marker)) => {}
                None => {
                    state.foreign = Some(Foreign {
                        kind,
                        value,
                        expires_at_ms,
                    });
                }
            }
        }
        let mut records = fields(waiters);
        if !records.is_empty() && left(queue_for) != left(waiters_for) {
            return Err(format!(
                "queue and records differ: {queue_for:?} {waiters_for:?}"
            ));
        }
        let (mut expired, mut last_end) = (0, 0);
        for pair in queue.array().chunks(2) {
            let (token, score) = (pair[0].text(), pair[1].text());
            let record = records.remove(&token);
            let Some(end) = score.strip_prefix('-') else {
                let record = record.ok_or("a waiter without a record")?;
                state.queue.push_back(waiter(&token, &record)?);
                continue;
            };
            let expires_at_ms: u64 = end.parse().map_err(|_| "the end of a holder")?;
            // What is left of a lock that was deleted, or has expired.
            expired += usize::from(expires_at_ms < now_ms);
            if let Some(marker) = several.filter(|_| expires_at_ms >= now_ms) {
                last_end = expires_at_ms.max(last_end);
                let of = one_of(&token, record.as_deref(), marker, expires_at_ms);
                state
                    .holders
                    .push(of.ok_or_else(|| format!("{token}: {record:?}"))?);
            } else if !state.holders.is_empty() && several.is_none() {
                return Err("one holder beside the holder".into());
            }
        }
        // A holder counts in its last millisecond, when the key would be gone.
        let ends = left(lease).map(|left| now_ms + left);
        let fits = match last_end {
            0 => expired > 0 && ends == Some(now_ms),
            last => ends == Some(last) || ends == Some(last + 1),
        };
        if several.is_some() && !fits {
            return Err(format!(
                "a marker until {ends:?}, its holders until {last_end}"
            ));
        }
        if !records.is_empty() {
            return Err(format!("records of nobody: {records:?}"));
        }
        if !is_marked && !state.queue.is_empty() {
            return Err("somebody waits, and the holder's value does not say so".into());
        }
        sort(&mut state.holders);
        let has_queue = !state.queue.is_empty() || last_end > 0;
        Ok(Kept {
            queue_for_ms: left(queue_for).filter(|_| has_queue),
            state,
        })
    }

    /// The keys of the counters of these names. A node has them for the terms of its mark, and after a loss of its memory a
    /// client with other terms may have made that.
    fn counter_keys(&mut self, names: &[LockName]) -> Result<Vec<String>, String> {
        if self.role == Role::Alone {
            return Ok(vec![COUNTER.into()]);
        }
        let terms = self.mark_of()?.map_or(terms(), |mark| mark.terms);
        let of = |name| counter_of(terms, name);
        Ok(names.iter().map(of).collect())
    }

    fn mark_of(&mut self) -> Result<Option<Mark>, String> {
        let mark = self.command(&["GET", MARK]);
        let mark = (!mark.is_nil()).then(|| mark.text());
        mark.map(|text| read_mark(&text).ok_or(text)).transpose()
    }

    /// Reads the counters and the mark, and how many keys they are.
    fn memory(&mut self, names: &[LockName]) -> Result<(Memory, i64), String> {
        let (mut counters, mut keys) = (Vec::new(), 0);
        for key in self.counter_keys(names)? {
            let last = self.command(&["GET", &key]);
            if last.is_nil() {
                counters.push(Counter::default());
                continue;
            }
            if self.command(&["PTTL", &key]).int() != -1 {
                return Err("a counter has a TTL".into());
            }
            let last = last.text();
            let is_lost = LOST.contains(&Some(&*last));
            let last = (!is_lost).then(|| last.parse().map_err(|_| last.clone()));
            counters.push(Counter(last.transpose()?.map(Fence::new)));
            keys += 1;
        }
        let mark = self.mark_of()?;
        keys += i64::from(mark.is_some());
        Ok((Memory { counters, mark }, keys))
    }

    /// Which of these steps the short form fits, given the stored state and the effects of earlier steps.
    pub(super) fn fits(
        &mut self,
        kind: Kind,
        steps: &[(LockName, Step)],
        clock_us: u64,
        others: bool,
    ) -> Result<Vec<bool>, String> {
        let mark = match self.role {
            Role::Alone => None,
            Role::Node => self.mark_of()?,
        };
        // A node of another quorum refuses all of them.
        if mark.is_some_and(|mark| mark.terms != terms_of(others)) {
            return Ok(vec![false; steps.len()]);
        }
        let (mut values, mut counters) = (BTreeMap::new(), BTreeMap::new());
        let mut fits = Vec::new();
        for (name, step) in steps {
            let queue = name.beside(":lh-queue");
            let free = self.command(&["EXISTS", name.key(), &queue]).int() == 0;
            let mut value = || self.command(&["GET", name.key()]);
            let known = values.entry(name.key().to_owned()).or_insert_with(|| {
                let value = if free { None } else { Some(value()) };
                value.map(|value| match value {
                    testkit::Reply::Str(bytes) => bytes,
                    _ => b"another type".to_vec(),
                })
            });
            let own = |owner: &Owner, fence: &Option<Fence>| {
                let fence = fence.map_or(0, Fence::get);
                format!("{}#{fence}", owner.token()).into_bytes()
            };
            let is = |known: &Option<Vec<u8>>, own: &[u8]| {
                let rest = known.as_ref().and_then(|value| value.strip_prefix(own));
                rest.is_some_and(|rest| matches!(rest, [] | [b'/', .., b'0'..=b'9']))
            };
            let fit = !kind.is_long()
                && match step {
                    Step::Acquire { .. } => known.is_none(),
                    Step::Propose(proposal) => {
                        let key = counter_of(proposal.terms, name);
                        let counter = counters.entry(key.clone()).or_insert_with(|| {
                            let last = self.command(&["GET", &key]);
                            (!last.is_nil())
                                .then(|| last.text().parse::<u64>().ok())
                                .flatten()
                        });
                        let first = proposal.fences.first.get();
                        let most = clock_us + 10_000_000;
                        let fits = known.is_none()
                            && counter.is_some_and(|last| last < first && first <= most);
                        if fits {
                            *counter = Some(proposal.fences.last().get());
                        }
                        fits
                    }
                    Step::GiveBack { owner, fence } => is(known, &own(owner, &Some(*fence))),
                    Step::Extend { owner, fence, .. } | Step::Release { owner, fence, .. } => {
                        is(known, &own(owner, fence))
                    }
                    Step::Break { .. } | Step::Inspect => false,
                };
            match step {
                Step::Acquire { .. } | Step::Propose(_) if fit => *known = Some(b"taken".to_vec()),
                Step::Release { keep: None, .. } | Step::GiveBack { .. } if fit => *known = None,
                _ => {}
            }
            fits.push(fit);
        }
        Ok(fits)
    }
}

/// The fields of a hash, with their values.
fn fields(hash: &testkit::Reply) -> BTreeMap<String, String> {
    let pairs = hash.array().chunks(2);
    pairs.map(|pair| (pair[0].text(), pair[1].text())).collect()
}

/// Reads a mark without the production code.
fn read_mark(text: &str) -> Option<Mark> {
    let words: Vec<&str> = text.split(' ').collect();
    let ([nodes, longest, made_at, id] | [nodes, longest, made_at, id, "young"]) = words[..] else {
        return None;
    };
    let longest = Duration::from_millis(longest.parse().ok()?);
    let is_id = id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then_some(Mark {
        terms: QuorumTerms {
            nodes: nodes.parse().ok()?,
            longest_ttl: Ttl::new(longest).ok()?,
        },
        made_at_ms: made_at.parse().ok()?,
    })
}

/// Reads a holder's value: its owner, its fences, and whether it has the mark of waiters.
fn holder(value: &str) -> Option<(Owner, Fences, bool)> {
    let (token, rest) = value.split_once('#')?;
    let (fences, marked) = match rest.strip_suffix('!') {
        Some(fences) => (fences, true),
        None => (rest, false),
    };
    let (first, many) = fences.split_once('/').unwrap_or((fences, "1"));
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u64>().ok()).flatten()
    };
    let first = number(first).filter(|first| *first <= Fence::MAX.get())?;
    let many = number(many).filter(|many| (1..=1_024).contains(many))?;
    let (first, block) = (Fence::new(first), Block::nearest(many));
    let is_short = value.len() < leasehold_core::VALUE_SHOWN;
    let owner = Owner::parse(token).filter(|_| is_short)?;
    Some((owner, Fences { first, block }, marked))
}

/// The value of a lock that several hold.
#[derive(Debug, Clone, Copy)]
enum Marker {
    /// Readers, with their fence.
    Shared(Fence),
    Slots,
}

impl Marker {
    fn read(value: &str) -> Option<Self> {
        if value == "lh1-slots" {
            return Some(Self::Slots);
        }
        let fence = value.strip_prefix("lh1-shared#")?;
        let is_number = !fence.is_empty() && fence.bytes().all(|byte| byte.is_ascii_digit());
        let fence = fence.parse().ok().filter(|_| is_number).map(Fence::new)?;
        (fence <= Fence::MAX).then_some(Self::Shared(fence))
    }
}

impl Role {
    /// Whether it knows this marker. A node has no slots.
    fn has(self, marker: Marker) -> bool {
        self == Self::Alone || matches!(marker, Marker::Shared(_))
    }
}

/// Reads one of several holders. Those of slots have a record, and votes for readers.
fn one_of(token: &str, record: Option<&str>, marker: Marker, expires_at_ms: u64) -> Option<Holder> {
    let mut vote = None;
    let (mode, slot, first, block) = match (marker, record) {
        (Marker::Shared(fence), None) => (Mode::Shared, None, fence, Block::ONE),
        (Marker::Shared(fence), Some(record)) => {
            let number = record.strip_prefix("shared ")?.parse().ok()?;
            vote = Some(Fence::new(number));
            (Mode::Shared, None, fence, Block::ONE)
        }
        (Marker::Slots, Some(record)) => {
            let words: Vec<&str> = record.split(' ').collect();
            let [of, number, first, block] = words[..] else {
                return None;
            };
            let of = Slots::new(of.strip_prefix("slot/")?.parse().ok()?).ok()?;
            let first = Fence::new(first.parse().ok()?);
            let block = Block::nearest(block.parse().ok()?);
            (Mode::Slot(of), Some(number.parse().ok()?), first, block)
        }
        _ => return None,
    };
    Some(Holder {
        owner: Owner::parse(token)?,
        mode,
        fences: Fences { first, block },
        slot,
        vote,
        expires_at_ms,
        kept: false,
    })
}

/// Reads a record of the queue.
fn waiter(token: &str, record: &str) -> Result<Waiter, String> {
    let bad = || format!("not a record: {token} {record}");
    let owner = Owner::parse(token).ok_or_else(bad)?;
    let words: Vec<&str> = record.split(' ').collect();
    let [mode, ttl, block, channel, seen_until] = words[..] else {
        return Err(bad());
    };
    let listening = channel == format!("leasehold:wake:{}", owner.client());
    if !(listening || channel == "-") {
        return Err(bad());
    }
    let ttl = Duration::from_millis(ttl.parse().map_err(|_| bad())?);
    Ok(Waiter {
        owner,
        mode: mode.parse().map_err(|_| bad())?,
        ttl: Ttl::new(ttl).map_err(|_| bad())?,
        block: Block::nearest(block.parse().map_err(|_| bad())?),
        listening,
        seen_until_ms: seen_until.parse().map_err(|_| bad())?,
    })
}
