//! The protocol between the scripts in `lua/` and this client; `docs/reference/protocol.md` describes it.
//!
//! | part | content |
//! |---|---|
//! | keys and words | the names that both sides use |
//! | kinds | in which form a step is sent, and with which others |
//! | arguments | writes steps as the keys and arguments of their script |
//! | answers | reads the answer of a script; an unknown form is an error, never a guess |
//! | confirmations | asks whether replicas have what was written |
//! | messages | reads the messages on a client's channel; an unknown form is ignored |

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::slice;
use std::sync::LazyLock;
use std::time::Duration;

use leasehold_core::quorum::{Mark, NoVote, Proposal, QuorumTerms, bucket, quarantine};
use leasehold_core::{
    Acceptable, Block, Busy, ClientId, Fence, Fences, Held, HolderIdentity, HolderView, LockName,
    Mode, Now, Owner, Reply, SLOTS, Slots, Snapshot, Step, Ttl, Wait, WaiterView, Wake, slot,
};
use redis::{ErrorKind, RedisError, RedisResult, Value, parse_redis_value};

use super::address::Replicas;
use super::fault::{classify, is_wrong_type};
use super::resp::{Command, digits};
use super::scripts::{
    ACQUIRE_MANY, BREAK, Counters, DELEX, INSPECT, NodeTerms, PROPOSE, PROPOSE_MANY, SETTLE,
    SETTLE_MANY, TAKE,
};
use crate::error::{NotAMark, StoreErrorKind};
use crate::fold::Folding;
use crate::store::contract::Notice;

// Keys and words.

/// The counter of all fences. The only key that remains when a lock is free.
pub(super) const COUNTER: &str = "leasehold:fence";

/// The hash tag of each slot of a cluster: the smallest number whose decimal digits lead to that slot. The counter of a slot is
/// `leasehold:fence:{tag}`, and a client's channel there `leasehold:wake:{tag}:<client>`.
static TAGS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut tags = vec![None; usize::from(SLOTS)];
    let mut missing = tags.len();
    for number in 0.. {
        let of = usize::from(slot(&u32::to_string(&number)));
        if tags[of].is_none() {
            tags[of] = Some(number);
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    tags.into_iter().flatten().collect()
});

/// The counter of a slot of a cluster.
pub(super) fn slot_counter(slot: u16) -> String {
    format!("{COUNTER}:{{{}}}", TAGS[usize::from(slot)])
}

/// The client's channel in a slot of a cluster; `channel` is that of the client.
pub(super) fn slot_channel(channel: &str, slot: u16) -> String {
    let (begin, client) = channel.rsplit_once(':').unwrap_or_default();
    format!("{begin}:{}{client}", slot_tag(slot))
}

/// What comes before the client in its channel in a slot.
pub(super) fn slot_tag(slot: u16) -> String {
    format!("{{{}}}:", TAGS[usize::from(slot)])
}

/// The mark of a node of a quorum.
pub(super) const MARK: &str = "leasehold:quorum";

/// The length of the name of a server in a mark: the begin of its `run_id`, in hexadecimal digits.
pub(super) const MARK_ID: usize = 16;

/// A mark, as the server of a node keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WrittenMark {
    pub(super) mark: Mark,
    /// The start of the server that it is of: the begin of the `run_id`.
    pub(super) server: String,
    /// No request has come since its quarantine ended.
    pub(super) is_young: bool,
}

impl WrittenMark {
    /// The mark in the reply to `GET`; `None` if there is none, or this user may not read it.
    ///
    /// # Errors
    /// The key holds something else.
    pub(super) fn in_reply(reply: RedisResult<Value>) -> Result<Option<Self>, NotAMark> {
        match reply {
            Ok(Value::Nil) => Ok(None),
            Ok(value) => {
                let read = text(&value).and_then(Self::read);
                read.map(Some).ok_or(NotAMark)
            }
            Err(error) if is_wrong_type(&error) => Err(NotAMark),
            Err(_) => Ok(None),
        }
    }

    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut next = || words.next();
        let (nodes, longest, made_at, server) = (next()?, next()?, next()?, next()?);
        let longest = Duration::from_millis(longest.parse().ok()?);
        let read = Self {
            mark: Mark {
                terms: QuorumTerms {
                    nodes: nodes.parse().ok()?,
                    longest_ttl: Ttl::new(longest).ok()?,
                },
                made_at_ms: made_at.parse().ok()?,
            },
            server: server.to_owned(),
            is_young: next().is_some(),
        };
        let is_start = server.len() == MARK_ID && server.bytes().all(|it| it.is_ascii_hexdigit());
        // No sign, no leading zero, no other word.
        (is_start && read.to_string() == text).then_some(read)
    }

    /// The mark of a node that was started again with all its data: it names the new start. `None` if nothing is to be changed: the disk
    /// may lack changes, the mark names this start already, it is of another quorum, or the server was a replica since its start, so its
    /// data may be those of another one. `offset` is its `second_repl_offset` in `INFO`.
    pub(super) fn adopted(
        &self,
        node: NodeTerms,
        start: &str,
        offset: Option<&str>,
    ) -> Option<Self> {
        let has_all = node.durable && offset == Some("-1");
        let is_former = self.mark.terms == node.terms && self.server != start;
        (has_all && is_former).then(|| Self {
            server: start.to_owned(),
            ..self.clone()
        })
    }

    /// The mark is of another start or of another server, and is not adopted. The next request begins a quarantine.
    pub(super) fn is_foreign(&self, node: NodeTerms, start: &str, offset: Option<&str>) -> bool {
        self.server != start && self.adopted(node, start, offset).is_none()
    }

    /// How long the node gives no vote to names that it has no counter for: from the next request on, if that begins a quarantine.
    pub(super) fn votes_in(
        &self,
        node: NodeTerms,
        start: &str,
        offset: Option<&str>,
        now: Now,
    ) -> Duration {
        if self.is_foreign(node, start, offset) {
            quarantine(self.mark.terms.longest_ttl)
        } else {
            self.mark.quarantined_for(now).unwrap_or_default()
        }
    }
}

impl fmt::Display for WrittenMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mark { terms, made_at_ms } = self.mark;
        let (nodes, longest) = (terms.nodes, terms.longest_ttl.millis());
        let state = if self.is_young { " young" } else { "" };
        write!(f, "{nodes} {longest} {made_at_ms} {}{state}", self.server)
    }
}

/// The key of the counter of a name's bucket. A client that counts another quorum finds no counter there.
pub(super) fn counter_of(terms: QuorumTerms, name: &LockName) -> String {
    counter_in(terms, bucket(name))
}

/// The key of the counter of a bucket.
pub(super) fn counter_in(terms: QuorumTerms, bucket: u16) -> String {
    let QuorumTerms { nodes, longest_ttl } = terms;
    format!("{MARK}:{nodes}:{}:{bucket}", longest_ttl.millis())
}

/// The index of names for operators.
pub(super) const INDEX: &str = "leasehold:index";

/// The suffix of the key of a lock's queue.
pub(super) const QUEUE: &str = ":lh-queue";

/// The suffix of the key of its waiters' records.
pub(super) const WAITERS: &str = ":lh-waiters";

/// Stands for the channel of a client that is not subscribed: its waiters only poll.
pub(super) const POLL_ONLY: &str = "-";

/// The name of a mode in scripts and records: its text.
pub(super) fn mode_word(mode: Mode) -> Cow<'static, str> {
    match mode {
        Mode::Exclusive => "exclusive".into(),
        Mode::Shared => "shared".into(),
        Mode::Slot(_) => mode.to_string().into(),
    }
}

// Kinds.

/// The most steps in one batch: long enough for the request to cost little beside its steps, short enough (half a
/// millisecond) not to delay other clients of the server.
pub(super) const MOST: usize = 32;

/// Which steps may share a batch: those of one script, which a full server treats alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Extends or releases. A full server executes them too.
    Settle,
    /// Extends or releases, for locks that may have other waiters.
    SettleLong,
    /// Acquires. A full server refuses them.
    Acquire,
    /// Acquires, for locks that may have another holder or waiters.
    AcquireLong,
    /// Looks at locks. A full server executes them too.
    Look,
    /// Breaks: rare, and always alone.
    Alone,
}

impl Kind {
    /// In the order of sending: steps that free a lock go before steps that take one.
    pub(super) const ALL: [Self; 6] = [
        Self::Settle,
        Self::SettleLong,
        Self::Acquire,
        Self::AcquireLong,
        Self::Look,
        Self::Alone,
    ];

    /// True for kinds that extend or release.
    pub(super) const fn settles(self) -> bool {
        matches!(self, Self::Settle | Self::SettleLong)
    }

    /// How many steps of this kind may share a batch.
    pub(super) const fn most(self) -> usize {
        match self {
            Self::Alone => 1,
            _ => MOST,
        }
    }

    /// True if no other form follows.
    pub(super) fn is_long(self) -> bool {
        self == self.long()
    }

    /// The form that follows where this one does not fit.
    pub(super) const fn long(self) -> Self {
        match self {
            Self::Settle | Self::SettleLong => Self::SettleLong,
            Self::Acquire | Self::AcquireLong => Self::AcquireLong,
            Self::Look => Self::Look,
            Self::Alone => Self::Alone,
        }
    }
}

/// How a step is sent while its slot moves from one node of a cluster to another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Detour {
    /// To the node that takes the slot, which does not own it yet.
    pub(super) asking: bool,
    /// By the key of the lock alone, also if others wait: the keys of the lock are at two nodes. A lock that is released so is free as
    /// after the end of its lease, and the next step grants it to the first waiter.
    pub(super) alone: bool,
}

/// The last argument of an extension or a release that is done by the key of the lock [alone](Detour::alone).
const ALONE: &str = "!";

/// How many contended locks are remembered: enough for all locks that a client uses at once. A forgotten lock only
/// costs a second request.
const KNOWN: usize = 1_024;

/// The locks that had another holder or waiters when the client last heard of them.
#[derive(Debug, Default)]
pub(super) struct Contended {
    names: HashSet<String, Folding>,
    /// Locks that were granted with several fences.
    blocks: HashSet<String, Folding>,
}

impl Contended {
    /// The kind of a step.
    pub(super) fn kind(&self, name: &LockName, step: &Step) -> Kind {
        let kind = match step {
            Step::Acquire {
                mode: Mode::Exclusive,
                ..
            }
            | Step::Propose(Proposal {
                is_shared: false, ..
            }) => Kind::Acquire,
            // The short form takes a lock that is free for one holder.
            Step::Acquire { .. } | Step::Propose(_) => Kind::AcquireLong,
            // The short form compares the whole value, which contains the fence.
            Step::Extend { fence: None, .. } | Step::Release { fence: None, .. } => {
                Kind::SettleLong
            }
            Step::Extend { .. } | Step::Release { .. } | Step::GiveBack { .. } => Kind::Settle,
            Step::Inspect => Kind::Look,
            Step::Break { .. } => Kind::Alone,
        };
        if !self.names.is_empty() && self.names.contains(name.key()) {
            kind.long()
        } else {
            kind
        }
    }

    /// Learns from a reply whether the lock is contended.
    pub(super) fn learn(&mut self, name: &LockName, reply: &Reply) {
        match reply {
            Reply::Held(held) => {
                self.is(name.key(), held.queued > 0);
                note(&mut self.blocks, name.key(), held.block != Block::ONE);
            }
            Reply::Busy(_) => self.is(name.key(), true),
            Reply::NotHeld(holder) => self.is(name.key(), holder.is_some()),
            Reply::NoVote(_) | Reply::Released | Reply::Seen(_) => {}
        }
    }

    /// Records whether the lock with this key has another holder or waiters.
    pub(super) fn is(&mut self, key: &str, contended: bool) {
        note(&mut self.names, key, contended);
    }

    /// Whether one command of the server may do the step: it frees a lock if that has a certain value, which a grant of several fences has
    /// not.
    pub(super) fn is_native(&self, name: &LockName, step: &Step) -> bool {
        let is_plain = matches!(
            step,
            Step::Release {
                keep: None,
                fence: Some(_),
                ..
            }
        );
        is_plain && (self.blocks.is_empty() || !self.blocks.contains(name.key()))
    }
}

/// Notes whether the key is in the set, which forgets all rather than grow.
fn note(set: &mut HashSet<String, Folding>, key: &str, is_in: bool) {
    if !is_in {
        if !set.is_empty() {
            set.remove(key);
        }
    } else if !set.contains(key) {
        if set.len() >= KNOWN {
            set.clear();
        }
        set.insert(key.to_owned());
    }
}

// Arguments.

/// The script that executes steps of one kind; `first` is the first of them.
pub(super) fn script_of(kind: Kind, first: Option<&Step>) -> usize {
    match (kind, first) {
        (Kind::Settle, _) => SETTLE,
        (Kind::SettleLong, _) => SETTLE_MANY,
        (Kind::Acquire, Some(Step::Propose(_))) => PROPOSE,
        (Kind::AcquireLong, Some(Step::Propose(_))) => PROPOSE_MANY,
        (Kind::Acquire, _) => TAKE,
        (Kind::AcquireLong, _) => ACQUIRE_MANY,
        (Kind::Look, _) => INSPECT,
        (Kind::Alone, _) => BREAK,
    }
}

/// Writes the number of keys, the keys and the arguments for these steps of one kind. Scripts publish wakes for waiters on
/// `channel`. A node of a quorum compares `counts` with its mark: how this client counts, and the server. `alone`: see [`Detour`].
pub(super) fn write<'a>(
    kind: Kind,
    counters: Counters,
    counts: &str,
    channel: &str,
    alone: bool,
    steps: impl ExactSizeIterator<Item = &'a (LockName, Step)> + Clone,
    into: &mut Command,
) {
    let suffixes: &[&str] = match kind {
        Kind::Settle => &[],
        Kind::Acquire => &[QUEUE],
        Kind::SettleLong | Kind::AcquireLong | Kind::Look | Kind::Alone => &[QUEUE, WAITERS],
    };
    // The key before all others, and the terms of the counters before each name.
    let counter;
    let (first, terms) = match (kind, counters) {
        (Kind::Settle, Counters::Shared | Counters::BySlot) => (None, None),
        (Kind::Settle, Counters::ByBucket(_)) => (Some(MARK), None),
        (_, Counters::Shared) => (Some(COUNTER), None),
        (_, Counters::ByBucket(node)) => (Some(MARK), Some(node.terms)),
        (_, Counters::BySlot) => {
            let name = steps.clone().next().map_or("", |(name, _)| name.key());
            counter = slot_counter(slot(name));
            (Some(&*counter), None)
        }
    };
    let each = 1 + suffixes.len() + usize::from(terms.is_some());
    into.number((usize::from(first.is_some()) + steps.len() * each) as u64);
    if let Some(first) = first {
        into.word(first);
    }
    let takes = kind == Kind::Acquire && terms.is_none();
    for (name, _) in steps.clone() {
        if let Some(terms) = terms {
            into.word(counter_of(terms, name));
        }
        into.word(name.key());
        if !takes {
            write_beside(name, suffixes, into);
        }
    }
    if takes {
        for (name, _) in steps.clone() {
            write_beside(name, suffixes, into);
        }
        encode_takes(steps, into);
    } else if kind == Kind::Settle {
        encode_settlements(steps, into);
        if alone {
            into.word(ALONE);
        }
    } else {
        for (_, step) in steps {
            encode(kind, channel, step, into);
        }
    }
    if matches!(counters, Counters::ByBucket(_)) {
        into.word(counts);
    }
}

/// Writes the keys with these suffixes.
fn write_beside(name: &LockName, suffixes: &[&str], into: &mut Command) {
    for suffix in suffixes {
        into.joined(&name.beside_in_parts(suffix).map(str::as_bytes));
    }
}

/// Writes the arguments of acquires in their short form.
fn encode_takes<'a>(steps: impl Iterator<Item = &'a (LockName, Step)> + Clone, into: &mut Command) {
    let takes = steps.filter_map(|(_, step)| match step {
        Step::Acquire {
            owner, ttl, block, ..
        } => Some((owner, *ttl, *block)),
        _ => None,
    });
    for (owner, ..) in takes.clone() {
        into.word(owner.token());
    }
    let terms = takes.map(|(_, ttl, block)| (ttl, block));
    match terms.clone().next() {
        Some(all @ (ttl, Block::ONE)) if terms.clone().all(|each| each == all) => {
            into.number(ttl.millis());
        }
        _ => terms.for_each(|(ttl, block)| {
            into.number(ttl.millis()).number(block.get());
        }),
    }
}

/// Writes the arguments of extensions and releases in their short form, which compares the fence.
fn encode_settlements<'a>(
    steps: impl Iterator<Item = &'a (LockName, Step)> + Clone,
    into: &mut Command,
) {
    let settlements = steps.filter_map(|(_, step)| settlement(step));
    into.written(|text| {
        for (at, (_, owner, _, fence)) in settlements.clone().enumerate() {
            if at > 0 {
                text.push(b' ');
            }
            text.extend_from_slice(owner.token().as_bytes());
            text.push(b'#');
            text.extend_from_slice(fence_digits(fence, &mut [0; 20]));
        }
    });
    let mut all_ms = settlements.map(|(_, _, ms, _)| ms);
    let first = all_ms.next().unwrap_or_default();
    into.written(|text| {
        text.extend_from_slice(digits(first, &mut [0; 20]));
        if all_ms.clone().any(|ms| ms != first) {
            for ms in all_ms {
                text.push(b' ');
                text.extend_from_slice(digits(ms, &mut [0; 20]));
            }
        }
    });
}

/// Writes the arguments of a step.
fn encode(kind: Kind, channel: &str, step: &Step, into: &mut Command) {
    match step {
        Step::Acquire {
            owner,
            mode,
            ttl,
            block,
            wait,
        } => {
            into.word(owner.token()).number(ttl.millis());
            into.word(mode_word(*mode).as_bytes()).number(block.get());
            into.word(waits_on(*wait, channel));
        }
        Step::Propose(proposal) => {
            let (owner, fences) = (&proposal.owner, proposal.fences);
            into.word(owner.token()).number(proposal.ttl.millis());
            if kind.is_long() {
                into.word(mode_word(proposal.mode()).as_bytes());
            }
            into.number(fences.first.get()).number(fences.block.get());
            if kind.is_long() {
                into.word(waits_on(proposal.wait, channel));
            }
        }
        Step::Break { fence } => {
            into.number(fence.get());
        }
        _ => {
            if let Some((verb, owner, ms, fence)) = settlement(step) {
                into.word(verb).word(owner.token()).number(ms);
                into.word(fence_digits(fence, &mut [0; 20]));
            }
        }
    }
}

/// The verb of an extension or a release, its owner, its ms, and the fence by which the owner believes to hold.
fn settlement(step: &Step) -> Option<(&'static str, &Owner, u64, Option<Fence>)> {
    match step {
        Step::Extend { owner, ttl, fence } => Some(("extend", owner, ttl.millis(), *fence)),
        Step::Release { owner, keep, fence } => {
            Some(("release", owner, keep.map_or(0, Ttl::millis), *fence))
        }
        Step::GiveBack { owner, fence } => Some(("give-back", owner, 0, Some(*fence))),
        _ => None,
    }
}

/// A fence in decimal; nothing for an unknown one.
fn fence_digits(fence: Option<Fence>, space: &mut [u8; 20]) -> &[u8] {
    fence.map_or(&[], |fence| digits(fence.get(), space))
}

/// Writes a plain release as this command of the server.
pub(super) fn write_native(command: &str, (name, step): &(LockName, Step), into: &mut Command) {
    let Step::Release {
        owner,
        fence: Some(fence),
        ..
    } = step
    else {
        return;
    };
    into.word(command).word(name.key());
    if command == DELEX {
        into.word("IFEQ");
    }
    // The value of a lock without waiters, by a grant of one fence.
    let (token, mut space) = (owner.token().as_bytes(), [0; 20]);
    into.joined(&[token, b"#", digits(fence.get(), &mut space)]);
}

/// How a request waits: not at all, on a channel, or by polls only.
fn waits_on(wait: Option<Wait>, channel: &str) -> &str {
    match wait {
        None => "",
        Some(wait) if wait.listening => channel,
        Some(_) => POLL_ONLY,
    }
}

// Answers.

/// Reads the answer to these steps of one kind. `take` gets for each step a reply or an error, or `None` if its short form did not fit.
/// Returns `None` if the answer has an unknown form; then nothing that was taken counts.
pub(super) fn decode<'a>(
    kind: Kind,
    value: &Value,
    steps: impl ExactSizeIterator<Item = &'a (LockName, Step)>,
    mut take: impl FnMut(Option<RedisResult<Reply>>),
) -> Option<()> {
    if let (Kind::Acquire, Some(said)) = (kind, text(value)) {
        return taken(said, steps, take);
    }
    let replies = match array(value) {
        Some(replies) if replies.len() == steps.len() => replies,
        None if kind == Kind::Settle && text(value)? == "done" => slice::from_ref(value),
        None if kind == Kind::SettleLong && steps.len() == 1 && text(value)? == "released" => {
            slice::from_ref(value)
        }
        _ => return None,
    };
    for (reply, (name, step)) in replies.iter().cycle().zip(steps) {
        take(if kind.is_long() {
            Some(long_reply(reply, name)?)
        } else {
            match text(reply)? {
                "other" | "contended" => None,
                said => Some(Ok(short_reply(said, step)?)),
            }
        });
    }
    Some(())
}

/// Reads the answer to acquires in their short form: the first fence, then the numbers of the steps that did not fit.
fn taken<'a>(
    said: &str,
    steps: impl Iterator<Item = &'a (LockName, Step)>,
    mut take: impl FnMut(Option<RedisResult<Reply>>),
) -> Option<()> {
    let mut words = said.split(' ');
    let mut next = fence_in(words.next()?)?.get();
    let mut unfit = words.next();
    for (number, (_, step)) in (1_usize..).zip(steps) {
        let Step::Acquire { block, .. } = step else {
            return None;
        };
        if unfit.is_some_and(|unfit| unfit.parse() == Ok(number)) {
            unfit = words.next();
            take(None);
        } else {
            let fence = Fence::new(next);
            next += block.get();
            take(Some(Ok(held(Some(fence), *block))));
        }
    }
    (unfit.is_none() && next <= Fence::MAX.get() + 1).then_some(())
}

/// The reply to the holder of a lock without waiters.
fn held(fence: Option<Fence>, block: Block) -> Reply {
    Reply::Held(Held {
        fence,
        slot: None,
        block,
        queued: 0,
    })
}

/// Reads the answer to a step that was sent as a command of the server; `None` if the step did not fit.
pub(super) fn native_reply(value: &Value) -> Option<RedisResult<Reply>> {
    match value {
        Value::Int(1) => Some(Ok(Reply::Released)),
        Value::Int(0) => None,
        other => Some(Err(no_known_form(other))),
    }
}

/// Reads the answer of a short form that fitted.
fn short_reply(said: &str, step: &Step) -> Option<Reply> {
    let (fence, block) = match step {
        Step::Propose(proposal) if said == "done" => {
            let Fences { first, block } = proposal.fences;
            (Some(first), block)
        }
        Step::Release { .. } | Step::GiveBack { .. } => {
            return block_of(said.strip_prefix("done")?).map(|_| Reply::Released);
        }
        Step::Extend { fence, .. } => (*fence, block_of(said.strip_prefix("done")?)?),
        _ => return None,
    };
    Some(held(fence, block))
}

/// Reads the answer of a long form.
fn long_reply(value: &Value, name: &LockName) -> Option<RedisResult<Reply>> {
    let Some(parts) = array(value) else {
        return brief(text(value)?).map(Ok);
    };
    let reply = match (text(parts.first()?)?, &parts[1..]) {
        ("busy", [ahead, poll_after, at_us, holder, others @ ..]) => Reply::Busy(Box::new(Busy {
            ahead: count(ahead)?,
            poll_after: millis(poll_after)?,
            at_us: number(at_us)?,
            others: match others {
                [] => 0,
                [others] => count(others)?,
                _ => return None,
            },
            holder: view(holder)??,
        })),
        ("behind", [least, most]) => Reply::NoVote(NoVote::Behind(bounds(least, most)?)),
        ("not-raised", [least, most]) => Reply::NoVote(NoVote::NotRaised(bounds(least, most)?)),
        ("quarantined", [left]) => Reply::NoVote(NoVote::Quarantined(millis(left)?)),
        ("other-terms", [nodes, longest]) => Reply::NoVote(NoVote::OtherTerms(QuorumTerms {
            nodes: u8::try_from(integer(nodes)?).ok()?,
            longest_ttl: Ttl::new(millis(longest)?).ok()?,
        })),
        ("not-held", [holder]) => Reply::NotHeld(view(holder)?.map(Box::new)),
        ("seen", [holder, queue, now, several @ ..]) => {
            let now = number(now)?;
            let queue = array(queue)?
                .chunks_exact(2)
                .filter_map(|pair| waiter(&pair[0], &pair[1], now))
                .collect();
            let (others, omitted) = match several {
                [] => (Vec::new(), 0),
                [others, omitted] => {
                    let others = array(others)?.iter().map(|other| view(other)?);
                    (others.collect::<Option<_>>()?, count(omitted)?)
                }
                _ => return None,
            };
            let seen = Snapshot::new(view(holder)?, queue).with_others(others, omitted);
            Reply::Seen(Box::new(seen))
        }
        ("error", [said]) => return Some(Err(error(said, name)?)),
        _ => return None,
    };
    Some(Ok(reply))
}

/// The error for an answer of an unknown form.
pub(super) fn no_known_form(value: &Value) -> RedisError {
    // Only the first word is shown, since values may be confidential.
    let word = array(value).and_then(<[_]>::first).and_then(text);
    let detail = word.unwrap_or("no word").to_owned();
    let what = "the answer of a script has an unknown form";
    (ErrorKind::UnexpectedReturnType, what, detail).into()
}

/// Reads the number of fences that were drawn, which follows the first fence: `/<how many>`, or nothing for one.
fn block_of(text: &str) -> Option<Block> {
    if text.is_empty() {
        return Some(Block::ONE);
    }
    let wanted = text.strip_prefix('/')?.parse().ok()?;
    Some(Block::nearest(wanted)).filter(|block| block.get() == wanted)
}

/// Reads the bounds of the fences that a node accepts.
fn bounds(least: &Value, most: &Value) -> Option<Acceptable> {
    let fence = |value| number(value).map(Fence::new);
    Some(Acceptable {
        least: fence(least)?,
        most: fence(most)?,
    })
}

/// Reads a reply that is one text: `released` or `held <fence> <how many> <queued>`, then the number of a slot.
fn brief(text: &str) -> Option<Reply> {
    if text == "released" {
        return Some(Reply::Released);
    }
    let mut words = text.strip_prefix("held ")?.split(' ');
    let mut next = || words.next();
    let (fence, block, queued) = (next()?, next()?, next()?);
    let slot = next().map(slot_in);
    let held = Held {
        fence: Some(fence_in(fence)?),
        slot: slot.map_or(Some(None), |slot| slot.map(Some))?,
        block: Block::nearest(block.parse().ok()?),
        queued: queued.parse().ok()?,
    };
    words.next().is_none().then_some(Reply::Held(held))
}

/// The error of one step, as the server would have sent it for that step alone. The word `script:` says that a command
/// in the script failed. The server does not say which key has the wrong type.
fn error(said: &Value, name: &LockName) -> Option<RedisError> {
    let Value::BulkString(said) = said else {
        return None;
    };
    let said = String::from_utf8_lossy(said).replace(['\r', '\n'], " ");
    // Older servers put the script's name and line before the code.
    let has_code = said.starts_with(|first: char| first.is_ascii_uppercase());
    let code = if has_code { "" } else { "ERR " };
    let which = if said.contains("WRONGTYPE") {
        let [queue, waiters] = [QUEUE, WAITERS].map(|suffix| name.beside(suffix));
        format!("; look at {COUNTER}, {queue} and {waiters}")
    } else {
        String::new()
    };
    let line = format!("-{code}{said} script: one of its steps{which}\r\n");
    parse_redis_value(line.as_bytes())
        .and_then(Value::extract_error)
        .err()
}

/// The texts of an array.
pub(super) fn texts(value: &Value) -> Vec<String> {
    let items = array(value).unwrap_or_default().iter();
    items.filter_map(text).map(str::to_owned).collect()
}

/// Reads a holder; the inner `None` says that there is none.
#[allow(
    clippy::option_option,
    reason = "the outer one says that the answer has another form"
)]
fn view(value: &Value) -> Option<Option<HolderView>> {
    let [kind, value, expires_in, fence, held_for, beside @ ..] = array(value)? else {
        return None;
    };
    let (mode, slot) = match beside {
        [] => (Mode::Exclusive, None),
        [mode] => (mode_in(mode, false)?, None),
        [mode, slot] => (mode_in(mode, true)?, Some(slot_in(text(slot)?)?)),
        _ => return None,
    };
    let kind = text(kind)?;
    if kind == "none" {
        return Some(None);
    }
    let Value::BulkString(token) = value else {
        return None;
    };
    let fence = match text(fence)? {
        "" => None,
        fence => Some(fence_in(fence)?),
    };
    // A token without a fence is not written by this protocol.
    let owner = std::str::from_utf8(token)
        .ok()
        .and_then(Owner::parse)
        .filter(|_| fence.is_some());
    let who = owner.map_or_else(
        || HolderIdentity::Foreign {
            kind: kind.into(),
            value: token.clone(),
        },
        HolderIdentity::Owner,
    );
    // A negative number stands for an unknown time, or for no end.
    let time = |value| integer(value).map(|time| u64::try_from(time).ok());
    let held_for = time(held_for)?.map(Duration::from_micros);
    let expires_in = time(expires_in)?.map(Duration::from_millis);
    let view = HolderView::new(who, fence, held_for, expires_in);
    Some(Some(view.in_mode(mode, slot)))
}

/// Reads the mode of a holder that is not alone, with or without a slot.
fn mode_in(value: &Value, has_slot: bool) -> Option<Mode> {
    let mode = text(value)?.parse().ok()?;
    let fits = match mode {
        Mode::Exclusive => false,
        Mode::Shared => !has_slot,
        Mode::Slot(_) => has_slot,
    };
    fits.then_some(mode)
}

/// Reads the number of a slot.
fn slot_in(text: &str) -> Option<u16> {
    let number = text.parse().ok().map(Slots::new)?;
    number.ok().map(Slots::get)
}

/// Reads a waiter in the queue; `None` for a record of another form, which no current client writes.
fn waiter(token: &Value, record: &Value, now_ms: u64) -> Option<WaiterView> {
    let owner = Owner::parse(text(token)?)?;
    let mut words = text(record)?.split(' ');
    let mut next = || words.next();
    let (mode, ttl, _block, _channel, seen_until) = (next()?, next()?, next()?, next()?, next()?);
    let mode = mode.parse().ok()?;
    let ttl = Ttl::new(Duration::from_millis(ttl.parse().ok()?)).ok()?;
    let seen_for = Duration::from_millis(seen_until.parse::<u64>().ok()?.saturating_sub(now_ms));
    Some(WaiterView::new(owner, mode, ttl, seen_for))
}

/// Reads a fence.
fn fence_in(text: &str) -> Option<Fence> {
    let fence = text.parse().ok().map(Fence::new);
    fence.filter(|fence| *fence <= Fence::MAX)
}

pub(super) fn millis(value: &Value) -> Option<Duration> {
    number(value).map(Duration::from_millis)
}

/// Reads a number that is not negative.
pub(super) fn number(value: &Value) -> Option<u64> {
    u64::try_from(integer(value)?).ok()
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        other => text(other)?.parse().ok(),
    }
}

fn count(value: &Value) -> Option<u32> {
    u32::try_from(integer(value)?).ok()
}

pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

pub(super) fn array(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(items) => Some(items),
        _ => None,
    }
}

// Confirmations.

/// The command that waits until `count` replicas have all that this connection has written, for at most `timeout`.
pub(super) fn wait_for(replicas: Replicas, count: u8, timeout: Duration) -> Vec<String> {
    // Zero stands for no limit.
    let ms = timeout.as_millis().max(1).to_string();
    if replicas.fsync {
        vec!["WAITAOF".into(), "1".into(), count.to_string(), ms]
    } else {
        vec!["WAIT".into(), count.to_string(), ms]
    }
}

/// Why a grant or a renewal does not count.
pub(super) type Unconfirmed = (StoreErrorKind, String);

/// Reads the answer to [`wait_for`].
///
/// # Errors
/// Too few replicas have what was written.
pub(super) fn confirmed(
    replicas: Replicas,
    answer: Value,
    timeout: Duration,
) -> Result<(), Unconfirmed> {
    let answer = answer
        .extract_error()
        .map_err(|error| cannot_wait(replicas, &error))?;
    let (of_server, of_replicas) = match (&answer, array(&answer)) {
        (Value::Int(count), _) => (1, *count),
        (_, Some([Value::Int(of_server), Value::Int(of_replicas)])) => (*of_server, *of_replicas),
        _ => {
            let error = no_known_form(&answer).to_string();
            return Err((StoreErrorKind::Protocol, error));
        }
    };
    let count = replicas.count;
    let why = if of_replicas < count.get().into() {
        format!("{of_replicas} of {count} replicas confirmed it within {timeout:.1?}")
    } else if of_server == 0 {
        format!("the server did not write it to its disk within {timeout:.1?}")
    } else {
        return Ok(());
    };
    let why = format!("{why}; the primary has executed it, and no client counts on it");
    Err((StoreErrorKind::Unavailable, why))
}

/// Why a server refuses to wait for replicas, and what helps.
pub(super) fn cannot_wait(replicas: Replicas, error: &RedisError) -> Unconfirmed {
    let (said, _) = classify("", error);
    let lower = said.detail.to_lowercase();
    let [command, option] = if replicas.fsync {
        ["WAITAOF", "fsync"]
    } else {
        ["WAIT", "replicas"]
    };
    if said.kind == StoreErrorKind::Denied {
        let permit = format!(
            "permit it with ACL SETUSER USER +{}, or leave {option} out of the URL",
            command.to_lowercase()
        );
        (said.kind, format!("{}; {permit}", said.detail))
    } else if lower.contains("unknown command") {
        let has = if replicas.fsync {
            ", which Redis 7.2 and Valkey have"
        } else {
            ""
        };
        let why = format!(
            "it does not know {command}{has}: connect to such a server and not to a proxy, or leave {option} out of the URL"
        );
        (StoreErrorKind::Misconfigured, why)
    } else if lower.contains("appendonly") {
        let why =
            "it has no append-only file: set appendonly yes there, or leave fsync out of the URL";
        (StoreErrorKind::Misconfigured, why.into())
    } else if error.code() == Some("UNBLOCKED") || is_of_replica(error) {
        (StoreErrorKind::Unavailable, said.detail)
    } else {
        (said.kind, said.detail)
    }
}

/// True if the server is a replica, which has no replicas to wait for: it does not execute the steps either.
pub(super) fn is_of_replica(error: &RedisError) -> bool {
    error.to_string().contains("replica instances")
}

// Messages.

/// The channel of a client. `acquire.lua` builds this name from the holder's token.
pub(super) fn channel(client: ClientId) -> String {
    format!("leasehold:wake:{client}")
}

/// Reads an invalidation message for cache entries: an array of keys, or nil for all keys. A message of another form
/// counts as one for all keys.
#[cfg(feature = "entries")]
pub(super) fn changed(pushed: &[Value]) -> Notice {
    let keys = match pushed {
        [Value::Array(keys)] => (keys.iter())
            .map(|key| text(key).map(str::to_owned))
            .collect(),
        _ => None,
    };
    Notice::Changed { keys }
}

/// Reads `granted <fence>[/<how many>] <at us> <queued after the grant> <token> <key>`, `slot <number> ` and the same words,
/// `wanted <holder's token> <key>`, `first <waiter's token> <key>` and `loaded <key>`. The key comes last, since it may
/// contain spaces. `-` stands for an unknown fence.
pub(super) fn notice(payload: &[u8]) -> Option<Notice> {
    let (verb, rest) = std::str::from_utf8(payload).ok()?.split_once(' ')?;
    match verb {
        "granted" | "slot" => {
            let (slot, rest) = if verb == "slot" {
                let (slot, rest) = rest.split_once(' ')?;
                (Some(slot_in(slot)?), rest)
            } else {
                (None, rest)
            };
            let mut words = rest.splitn(5, ' ');
            let mut next = || words.next();
            let (fences, at_us, queued) = (next()?, next()?, next()?);
            let (fence, block) = if fences == "-" {
                (None, Block::ONE)
            } else {
                let (fence, more) = fences.split_at(fences.find('/').unwrap_or(fences.len()));
                (Some(fence_in(fence)?), block_of(more)?)
            };
            let wake = Wake {
                fence,
                slot,
                block,
                at_us: at_us.parse().ok()?,
                queued: queued.parse().ok()?,
                owner: Owner::parse(next()?)?,
            };
            let key = next()?.to_owned();
            Some(Notice::Granted { key, wake })
        }
        "wanted" | "first" => {
            let (token, key) = rest.split_once(' ')?;
            let (owner, key) = (Owner::parse(token)?, key.to_owned());
            Some(match verb {
                "wanted" => Notice::Wanted { key, owner },
                _ => Notice::First { owner },
            })
        }
        #[cfg(feature = "entries")]
        "loaded" => {
            let key = rest.to_owned();
            Some(Notice::LoadEnded { key })
        }
        _ => None,
    }
}
