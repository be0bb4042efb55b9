//! Acquires a lock: rounds of proposals until a majority has voted for one, or none can be had.

use std::time::Duration;

use leasehold_core::quorum::{NoVote, Proposal, Proposer, Refusal, Verdict};
use leasehold_core::{
    Acceptable, Block, Busy, Fence, Fences, Held, LockName, Mode, Owner, Reply, Step, Ttl, Wait,
};

use super::attempt::{
    Attempt, Awaited, NodeReply, QuorumInfo, ROUNDS, Request, TRIES, is_open, refusal_error,
    superseded,
};
use super::effects::{Ballot, EventTime, Purpose, QuorumEffect, QuorumTimer, VoteUndo};
use super::lead::{Leads, PATIENCE, Passing, Stuck, WaitersHeard, is_in_no_queue};
use super::machine::QuorumMachine;
use super::owners::{OwnerRelease, Owners, Party, Record};
use crate::backoff::jittered;
use crate::clock::Moment;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::contract::Answer;

/// The first pause before a client with the vote of the lead asks the other nodes again, and the longest one. It doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// When a waiter asks again that waits in no queue.
const UNQUEUED: Duration = Duration::from_millis(50);

fn above(fence: Fence) -> Fence {
    Fence::new(fence.get() + 1)
}

/// The parts of the machine that an acquisition uses, beside the record of its owner.
pub(super) struct Context<'a, C> {
    info: &'a QuorumInfo,
    owner: &'a Owner,
    proposer: &'a mut Proposer,
    leads: &'a Leads,
    stuck: &'a mut Stuck,
    wanted: &'a mut WaitersHeard,
    at: EventTime,
    effects: &'a mut Vec<QuorumEffect<C>>,
}

impl<C> QuorumMachine<C> {
    /// Asks for the lock.
    pub(super) fn acquire(
        &mut self,
        at: EventTime,
        party: Party<'_>,
        request: Request,
        caller: C,
        effects: &mut Vec<QuorumEffect<C>>,
    ) {
        let Party { owner, name } = party;
        self.client.get_or_insert_with(|| owner.client());
        self.next_attempt += 1;
        let (number, lead) = (self.next_attempt, self.leads.of(name));
        let (owners, mut context) = self.context(at, owner, effects);
        let record = owners.entry(owner, name, request.ttl.get(), at.now);
        let fences = context.choose(request.block, record, None);
        record.keeps_votes = false;
        record.is_shared = request.is_shared;
        record.waits_to_read =
            request.is_shared && (request.wait.is_some() || record.waits_to_read);
        // An owner that asks again does not use an earlier certificate: its answer came too late.
        record.certified = None;
        let nodes = context.info.nodes.len();
        let mut attempt = Attempt::new(number, nodes, lead, request, caller, at.now, fences);
        // A waiter with the vote of the lead needs the others now. Without a majority, the error of each node tells more than a refusal.
        attempt.asks_lead_alone = !request.is_claim
            && context.leads.have_majority()
            && record.nodes[lead].votes.is_empty()
            && context
                .wanted
                .may_ask_lead_alone(name, request.is_shared, at.now);
        let before = record.attempt.replace(attempt);
        context.propose(record);
        // Its votes are those of the new attempt. It has no answer of its own.
        if let Some(caller) = before.and_then(|before| before.caller) {
            let error = superseded(&context.info.label);
            context
                .effects
                .push(QuorumEffect::Answer(caller, Err(error)));
        }
    }

    /// A node has answered a proposal.
    pub(super) fn voted(
        &mut self,
        at: EventTime,
        node: usize,
        ballot: &Ballot,
        answer: Answer,
        effects: &mut Vec<QuorumEffect<C>>,
    ) {
        let Ballot { owner, asked, sent } = ballot;
        if let Ok(reply) = &answer {
            let is_in_quarantine = matches!(reply, Reply::NoVote(NoVote::Quarantined(_)));
            (self.leads).took(node, at.now.since(*sent), is_in_quarantine);
        }
        let (owners, mut context) = self.context(at, owner, effects);
        let Some(record) = owners.get(owner) else {
            return;
        };
        let at_node = &mut record.nodes[node];
        at_node.open = at_node.open.saturating_sub(1);
        match &answer {
            Ok(Reply::Held(held)) => at_node.has_vote(held.fence.unwrap_or(*asked)),
            Err(error) if error.may_have_taken_effect => {
                record.may_have_vote(node, *asked, at.now);
            }
            _ => {}
        }
        context.note_waiters(&record.name, node, *sent, &answer);
        context.heard(record, node, *asked, answer);
        owners.tidy(owner, at.now);
    }

    /// The pause of an attempt is over.
    pub(super) fn retry(
        &mut self,
        at: EventTime,
        owner: &Owner,
        number: u64,
        effects: &mut Vec<QuorumEffect<C>>,
    ) {
        let (owners, mut context) = self.context(at, owner, effects);
        let Some(record) = owners.get(owner) else {
            return;
        };
        let block = match &record.attempt {
            Some(attempt) if attempt.number == number => attempt.request.block,
            _ => return,
        };
        let fences = context.choose(block, record, None);
        context.begin_round(record, fences);
    }

    /// The lease with this fence was granted a moment ago. The nodes without a vote for it are asked once more.
    pub(super) fn fill(
        &mut self,
        at: EventTime,
        owner: &Owner,
        first: Fence,
        effects: &mut Vec<QuorumEffect<C>>,
    ) {
        let (owners, mut context) = self.context(at, owner, effects);
        let Some(record) = owners.get(owner) else {
            return;
        };
        let certified = record
            .certified
            .filter(|certified| certified.first == first);
        if let (Some(certified), Ok(ttl)) = (certified, Ttl::new(record.ttl)) {
            for node in 0..record.nodes.len() {
                let at_node = &record.nodes[node];
                if at_node.votes.is_empty() && at_node.open == 0 {
                    context.ask(record, node, certified, ttl, None);
                }
            }
        }
    }

    /// Some nodes have kept an attempt waiting for longer than the others. It goes on without them. Those that take longer than usual
    /// count as nodes that fail, until they answer.
    pub(super) fn rest_is_late(
        &mut self,
        at: EventTime,
        owner: &Owner,
        awaited: Awaited,
        effects: &mut Vec<QuorumEffect<C>>,
    ) {
        let attempt = self.owners.get(owner).and_then(|it| it.attempt.as_mut());
        let Some(attempt) = attempt.filter(|it| it.awaits() == awaited) else {
            return;
        };
        let waited = attempt.awaits_rest.take().unwrap_or_default();
        if attempt.asks_lead_alone {
            // Slower than others is a node only beside them (V6).
            let (owners, mut context) = self.context(at, owner, effects);
            if let Some(record) = owners.get(owner) {
                context.ask_others(record);
            }
            return;
        }
        let missing: Vec<usize> = attempt.missing().collect();
        for &node in &missing {
            if self.leads.patience(node) <= waited {
                self.leads.heard(node, false);
            }
        }
        let (owners, mut context) = self.context(at, owner, effects);
        if let Some(record) = owners.get(owner) {
            for node in missing {
                context.is_late(record, node);
            }
            owners.tidy(owner, at.now);
        }
    }

    /// The records of all owners, and beside them the parts that an acquisition of this owner uses.
    pub(super) fn context<'a>(
        &'a mut self,
        at: EventTime,
        owner: &'a Owner,
        effects: &'a mut Vec<QuorumEffect<C>>,
    ) -> (&'a mut Owners<C>, Context<'a, C>) {
        let context = Context {
            info: &self.info,
            owner,
            proposer: &mut self.proposer,
            leads: &self.leads,
            stuck: &mut self.stuck,
            wanted: &mut self.wanted,
            at,
            effects,
        };
        (&mut self.owners, context)
    }
}

impl<C> Context<'_, C> {
    /// Chooses fences above all that the owner may hold or gives back. If the nodes have bounds, it chooses within them.
    fn choose(&mut self, block: Block, record: &Record<C>, bounds: Option<Acceptable>) -> Fences {
        let bounds = match bounds {
            Some(bounds) => Some(Acceptable {
                least: (record.back.highest)
                    .map_or(bounds.least, |highest| bounds.least.max(above(highest))),
                ..bounds
            }),
            None => record.highest().map(|highest| Acceptable {
                least: above(highest),
                most: Fence::MAX,
            }),
        };
        self.proposer.propose(block, self.at.wall_us, bounds)
    }

    /// Sends the current proposal to the nodes that are to be asked. Only the lead queues the owner.
    fn propose(&mut self, record: &mut Record<C>) {
        if let Some(attempt) = &record.attempt {
            let (fences, lead, request) = (attempt.fences, attempt.lead, attempt.request);
            let alone = attempt.asks_lead_alone;
            let asked: Vec<usize> = attempt.missing().collect();
            for node in asked {
                let wait = request.wait.filter(|_| node == lead);
                self.ask(record, node, fences, request.ttl, wait);
            }
            if alone {
                self.await_rest(record, self.leads.patience(lead));
            }
        }
    }

    /// Goes on once the lead alone has been asked. Its refusal is enough; only a full round may find that it is stuck.
    fn lead_answered(&mut self, record: &mut Record<C>) {
        let said = record.attempt.as_ref().and_then(Attempt::lead_said);
        match said {
            Some(NodeReply::Busy(busy)) if !is_in_no_queue(busy) => self.busy(record, None),
            _ => self.ask_others(record),
        }
    }

    /// Asks the other nodes, too, once the lead alone has been asked.
    fn ask_others(&mut self, record: &mut Record<C>) {
        if let Some(attempt) = &mut record.attempt {
            (attempt.asks_lead_alone, attempt.awaits_rest) = (false, None);
            let (fences, lead, ttl) = (attempt.fences, attempt.lead, attempt.request.ttl);
            for node in (0..attempt.said.len()).filter(|node| *node != lead) {
                self.ask(record, node, fences, ttl, None);
            }
        }
    }

    /// Asks a node for its vote.
    pub(super) fn ask(
        &mut self,
        record: &mut Record<C>,
        node: usize,
        fences: Fences,
        ttl: Ttl,
        wait: Option<Wait>,
    ) {
        record.nodes[node].open += 1;
        self.effects.push(QuorumEffect::Send {
            node,
            name: record.name.clone(),
            step: Step::Propose(Proposal {
                owner: self.owner.clone(),
                is_shared: record.is_shared,
                ttl,
                fences,
                terms: self.info.terms,
                wait,
            }),
            purpose: Purpose::Vote(Ballot {
                owner: self.owner.clone(),
                asked: fences.first,
                sent: self.at.now,
            }),
        });
    }

    fn begin_round(&mut self, record: &mut Record<C>, fences: Fences) {
        if let Some(attempt) = &mut record.attempt {
            attempt.propose(fences);
            self.propose(record);
        }
    }

    /// Notes what a node says of waiters. Only the lead knows that nobody waits, and its refusal may name a waiter that it has granted the
    /// lock just now.
    pub(super) fn note_waiters(
        &mut self,
        name: &LockName,
        node: usize,
        sent: Moment,
        answer: &Answer,
    ) {
        let is_wanted = match answer {
            Ok(Reply::Held(held)) if held.queued == 0 && self.leads.is_first(node, name) => false,
            Ok(Reply::Held(Held { queued: 1.., .. })) => true,
            Ok(Reply::Busy(busy)) if busy.ahead > 0 => true,
            _ => return,
        };
        (self.wanted).note(name.key(), is_wanted, sent, self.at.now);
    }

    /// Takes the answer of a node.
    fn heard(&mut self, record: &mut Record<C>, node: usize, asked: Fence, answer: Answer) {
        if let Some(release) = record.release {
            return self.heard_late(record, node, release, &answer);
        }
        match &mut record.attempt {
            Some(attempt) if attempt.asks(asked) => {
                let verdict = attempt.heard(node, answer);
                self.proceed(record, verdict);
            }
            // The current round asks this node again, or gives the vote back.
            Some(_) => {}
            None if record.certified.is_some() => self.repair(record, node, asked, &answer),
            None if record.keeps_votes => {}
            None => self.give_back(record),
        }
    }

    /// A node answers a proposal of an owner that was released meanwhile. If it answers after it has got the release, it may keep
    /// something again (V2).
    fn heard_late(
        &mut self,
        record: &mut Record<C>,
        node: usize,
        release: OwnerRelease,
        answer: &Answer,
    ) {
        let may_keep = match answer {
            Ok(reply) => matches!(reply, Reply::Held(_) | Reply::Busy(_)),
            Err(error) => error.may_have_taken_effect,
        };
        let at_node = &mut record.nodes[node];
        if !at_node.overtook.is_empty() {
            if at_node.open == 0 {
                for (gathering, undo) in std::mem::take(&mut at_node.overtook) {
                    self.effects.push(undo.send(node, gathering, self.at.now));
                }
            }
        } else if may_keep && at_node.releases == 0 && release.keep.is_none() {
            at_node.releases += 1;
            let party = Party {
                owner: self.owner,
                name: &record.name,
            };
            let undo = release.undo_at(at_node, party, self.at.now);
            self.effects.push(undo.send(node, None, self.at.now));
        }
    }

    /// A node that lacks the vote of a lease was asked for it, and accepts higher fences only: its counter has gone on, or it has lost its
    /// memory. It holds under one of them, for which its vote is no part of the certificate.
    fn repair(&mut self, record: &mut Record<C>, node: usize, asked: Fence, answer: &Answer) {
        if let (Some(certified), Ok(Reply::NoVote(NoVote::Behind(bounds)))) =
            (record.certified, answer)
            && asked == certified.first
            && bounds.least > certified.first
            && record.nodes[node].may_raise
        {
            // Another owner's fence may lie within the block of the lease. The hold is told from the certificate by a fence above that.
            let least = bounds.least.max(above(certified.last()));
            let bounds = Acceptable { least, ..*bounds };
            if least <= bounds.most
                && let Ok(ttl) = Ttl::new(record.ttl)
            {
                let fences =
                    (self.proposer).propose(certified.block, self.at.wall_us, Some(bounds));
                self.ask(record, node, fences, ttl, None);
            }
        }
    }

    /// The round goes on without this node.
    fn is_late(&mut self, record: &mut Record<C>, node: usize) {
        if let Some(attempt) = &mut record.attempt {
            let why = "it answers later than the other nodes";
            let error = StoreError::new(&self.info.nodes[node], StoreErrorKind::TimedOut, why);
            let verdict = attempt.heard(node, Err(error.unknown()));
            self.proceed(record, verdict);
        }
    }

    fn proceed(&mut self, record: &mut Record<C>, verdict: Verdict) {
        let Some(attempt) = &mut record.attempt else {
            return;
        };
        if attempt.asks_lead_alone {
            return self.lead_answered(record);
        }
        match verdict {
            Verdict::Open if attempt.is_mostly_said() => {
                let patience = attempt.missing().map(|node| self.leads.patience(node));
                let patience = patience.max().unwrap_or_default();
                self.await_rest(record, patience);
            }
            Verdict::Open => {}
            Verdict::Certified => self.certified(record),
            // Below a vote that is being given back, a late proposal could raise the new vote to that one (QR9).
            Verdict::Again(bounds) if record.back.highest >= Some(bounds.most) => {
                self.refused(record, Refusal::ClocksApart);
            }
            Verdict::Again(bounds) if attempt.rounds < ROUNDS => {
                attempt.rounds += 1;
                let block = attempt.request.block;
                self.proposer.learn(self.at.wall_us, bounds);
                let fences = self.choose(block, record, Some(bounds));
                self.begin_round(record, fences);
            }
            Verdict::Again(_) => self.refused(record, Refusal::ClocksApart),
            Verdict::Refused(refusal) => {
                if let (Refusal::ClocksApart, Some(most)) = (refusal, attempt.round.most()) {
                    let least = Fence::new(0);
                    let bounds = Acceptable { least, most };
                    self.proposer.learn(self.at.wall_us, bounds);
                }
                self.refused(record, refusal);
            }
        }
    }

    /// A majority has voted for the owner. If the lead alone holds it for another, that one is first in line.
    fn certified(&mut self, record: &mut Record<C>) {
        let Some(attempt) = &record.attempt else {
            return;
        };
        if attempt.is_pausing {
            return self.give_back(record);
        }
        // A failure of the lead is an answer, too (V4).
        let waits_for_lead = attempt.lead_said().is_none() && !attempt.request.is_claim;
        let is_wanted = self.wanted.is_wanted(&record.name, self.at.now);
        if waits_for_lead && is_wanted != Some(false) {
            // The lead knows whether others are first in line (V5). Without a sign of waiters, a slow one is not worth the time.
            let usual = self.leads.patience(attempt.lead);
            let patience = is_wanted.map_or(usual.min(2 * PATIENCE), |_| usual);
            return self.await_rest(record, patience);
        }
        if let Some(NodeReply::Busy(busy)) = attempt.lead_said() {
            // Beside readers, a reader is refused for a writer that waits. It does not pass that one, however long they hold (V5).
            let follows_writer = record.is_shared && busy.holder.mode == Mode::Shared;
            let passing = if follows_writer {
                Passing::Not
            } else {
                (self.stuck).passing(&record.name, busy, is_wanted, self.at.now)
            };
            match passing {
                Passing::Now => {}
                Passing::Later if attempt.tries < TRIES && attempt.has_time(self.at.now) => {
                    // For as long as the other one may take to ask for the votes again.
                    let pause = LONGEST_PAUSE + self.leads.patience(attempt.lead);
                    self.pause(record, pause);
                    return self.give_back(record);
                }
                Passing::Later | Passing::Not => return self.busy(record, None),
            }
        } else {
            self.stuck.forget(&record.name);
        }
        if let Some(mut attempt) = record.attempt.take() {
            (record.certified, record.granted) = (Some(attempt.fences), None);
            record.behind = None;
            let Fences { first, block } = attempt.fences;
            let held = Held {
                fence: (!record.is_shared).then_some(first),
                slot: None,
                block,
                queued: attempt.queued,
            };
            self.answer(&mut attempt, Ok(Reply::Held(held)));
            // The nodes without a vote for it are asked at once, or as soon as others have given theirs back: else the loss of another
            // node before the first renewal would end the lease.
            let mut is_busy = false;
            for (node, said) in attempt.said.into_iter().enumerate() {
                record.nodes[node].may_raise = true;
                match said {
                    Some(NodeReply::NoVote(reason)) => {
                        self.repair(record, node, first, &Ok(Reply::NoVote(reason)));
                    }
                    Some(NodeReply::Busy(_)) => is_busy = true,
                    _ => {}
                }
            }
            if is_busy {
                let timer = QuorumTimer::Fill(self.owner.clone(), first);
                self.effects
                    .push(QuorumEffect::Wake(2 * LONGEST_PAUSE, timer));
            }
        }
    }

    /// Begins the next round after this time.
    fn pause(&mut self, record: &mut Record<C>, pause: Duration) {
        if let Some(attempt) = &mut record.attempt {
            attempt.tries += 1;
            attempt.is_pausing = true;
            let timer = QuorumTimer::Retry(self.owner.clone(), attempt.number);
            self.effects
                .push(QuorumEffect::Wake(jittered(pause), timer));
        }
    }

    /// Nodes that are much later than the others are not waited for.
    fn await_rest(&mut self, record: &mut Record<C>, patience: Duration) {
        if let Some(attempt) = &mut record.attempt
            && attempt.awaits_rest.is_none()
        {
            attempt.awaits_rest = Some(patience);
            let timer = QuorumTimer::Rest(self.owner.clone(), attempt.awaits());
            self.effects.push(QuorumEffect::Wake(patience, timer));
        }
    }

    /// No majority can be had now.
    fn refused(&mut self, record: &mut Record<C>, refusal: Refusal) {
        let Some(attempt) = &mut record.attempt else {
            return;
        };
        match (refusal, attempt.lead_said()) {
            // Its next answer decides whether this client may keep its votes.
            (Refusal::Busy, None) => {
                let patience = self.leads.patience(attempt.lead);
                self.await_rest(record, patience);
            }
            (Refusal::Busy, Some(NodeReply::Vote)) => {
                let holder = attempt.holder().cloned();
                let is_asked_once = attempt.request.wait.is_none() && !attempt.request.is_claim;
                // The lead has forgotten a holder that others still name. There is no race to win.
                let is_held = holder.is_some()
                    && (is_asked_once && attempt.tries > 0 || holder == record.behind);
                let has_time = attempt.has_time(self.at.now);
                if attempt.is_pausing {
                } else if !is_held && attempt.tries < TRIES && has_time {
                    let pause = FIRST_PAUSE * (1 << attempt.tries.min(16));
                    self.pause(record, pause.min(LONGEST_PAUSE));
                } else {
                    let poll_after = holder.is_none().then_some(UNQUEUED);
                    let waits = attempt.request.wait.is_some() || attempt.request.is_claim;
                    record.behind = holder.filter(|_| waits);
                    self.busy(record, poll_after);
                }
            }
            (Refusal::Busy, Some(NodeReply::Busy(_))) => self.busy(record, None),
            (Refusal::Busy, Some(NodeReply::Failed(_) | NodeReply::NoVote(_))) => {
                self.busy(record, Some(UNQUEUED));
            }
            (Refusal::Unavailable, _) if is_open(self.info, attempt) => {}
            (Refusal::Unavailable | Refusal::ClocksApart, _) => self.fail(record, refusal),
        }
    }

    /// Reports that the lock is busy. The client gives back its votes, unless it waits with the vote of the lead (V3). A holder that a
    /// majority names has lost the vote of the lead, and wins it back at its next renewal.
    fn busy(&mut self, record: &mut Record<C>, poll_after: Option<Duration>) {
        let Some(mut attempt) = record.attempt.take() else {
            return;
        };
        let is_held = attempt.holder().is_some();
        if is_held {
            self.stuck.forget(&record.name);
        }
        let has_lead = matches!(attempt.lead_said(), Some(NodeReply::Vote));
        let keeps = attempt.request.wait.is_some() && has_lead && !is_held;
        record.keeps_votes = keeps;
        if !keeps {
            self.give_back(record);
        }
        let answer = match attempt.busy() {
            Some(busy) if attempt.request.is_claim => {
                Ok(Reply::NotHeld(Some(Box::new(busy.holder))))
            }
            Some(busy) => Ok(Reply::Busy(Box::new(Busy {
                poll_after: poll_after.unwrap_or(busy.poll_after),
                ahead: if keeps { 0 } else { busy.ahead },
                ..busy
            }))),
            // A round is refused as busy only if a node said so.
            None => Err(refusal_error(self.info, &attempt, Refusal::Unavailable)),
        };
        self.answer(&mut attempt, answer);
    }

    /// Reports that the quorum gives no verdict.
    fn fail(&mut self, record: &mut Record<C>, refusal: Refusal) {
        if let Some(mut attempt) = record.attempt.take() {
            self.give_back(record);
            let error = refusal_error(self.info, &attempt, refusal);
            self.answer(&mut attempt, Err(error));
        }
    }

    fn answer(&mut self, attempt: &mut Attempt<C>, answer: Answer) {
        if let Some(caller) = attempt.caller.take() {
            self.effects.push(QuorumEffect::Answer(caller, answer));
        }
    }

    /// Gives back all votes that are known. Those of nodes that have not answered follow with their answers.
    fn give_back(&mut self, record: &mut Record<C>) {
        for (at_node, node) in record.nodes.iter_mut().zip(0..) {
            for fence in std::mem::take(&mut at_node.votes) {
                record.back.begin(fence);
                let step = Step::GiveBack {
                    owner: self.owner.clone(),
                    fence,
                };
                let undo = VoteUndo::new(&record.name, step, self.at.now);
                self.effects.push(undo.send(node, None, self.at.now));
            }
        }
    }
}
