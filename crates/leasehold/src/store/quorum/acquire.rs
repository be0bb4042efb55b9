//! Acquires a lock: rounds of proposals until a majority has voted for one, or none can be had.

use std::time::Duration;

use leasehold_core::quorum::{Proposal, Proposer, Refusal, Verdict};
use leasehold_core::{Acceptable, Block, Busy, Fence, Fences, Held, Owner, Reply, Step};

use super::attempt::{
    Attempt, NodeReply, QuorumInfo, ROUNDS, Request, TRIES, is_open, refusal_error, superseded,
};
use super::effects::{EventTime, Purpose, QuorumEffect, QuorumTimer};
use super::lead::{Stuck, WantedNames};
use super::machine::QuorumMachine;
use super::owners::{Owners, Party, Record};
use super::settle::{give_back_at, release_at};
use crate::backoff::jittered;
use crate::store::contract::Answer;

/// The first pause before a client with the vote of the lead asks the other nodes again, and the longest one. It doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// When a waiter asks again that waits in no queue.
const UNQUEUED: Duration = Duration::from_millis(50);

/// The parts of the machine that an acquisition uses, beside the record of its owner.
struct Context<'a, C> {
    info: &'a QuorumInfo,
    owner: &'a Owner,
    proposer: &'a mut Proposer,
    stuck: &'a mut Stuck,
    wanted: &'a mut WantedNames,
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
        self.next_attempt += 1;
        let (number, lead) = (self.next_attempt, self.leads.of(name));
        let waits = self.owners.follow(name, owner, number);
        let (owners, mut context) = self.context(at, owner, effects);
        let record = owners.entry(owner, name, request.ttl.get(), at.now);
        let fences = context.choose(request.block, record, None);
        record.keeps_votes = false;
        // An owner that asks again does not use an earlier certificate: its answer came too late.
        record.certified = None;
        let nodes = context.info.nodes.len();
        let attempt = Attempt::new(number, nodes, lead, request, caller, at.now, fences);
        let before = record.attempt.replace(attempt);
        context.propose(record, |node| !waits[node]);
        record.waits_for = waits;
        // Its votes are those of the new attempt. It has no answer of its own.
        if let Some(caller) = before.and_then(|before| before.caller) {
            let error = superseded(&context.info.label);
            context
                .effects
                .push(QuorumEffect::Answer(caller, Err(error)));
        }
    }

    /// A node has answered the proposal of `asked`.
    pub(super) fn voted(
        &mut self,
        at: EventTime,
        owner: &Owner,
        node: usize,
        asked: Fence,
        answer: Answer,
        effects: &mut Vec<QuorumEffect<C>>,
    ) {
        let (owners, mut context) = self.context(at, owner, effects);
        let Some(record) = owners.get(owner) else {
            return;
        };
        record.open[node] = record.open[node].saturating_sub(1);
        match &answer {
            Ok(Reply::Held(held)) => record.has_vote(node, held.fence.unwrap_or(asked)),
            Err(error) if error.may_have_taken_effect => record.may_have_vote(node, asked, at.now),
            _ => {}
        }
        context.heard(record, node, asked, answer);
        let next = record.take_next(node);
        owners.tidy(owner, at.now);
        for (next, number) in next {
            self.follow(at, &next, number, node, effects);
        }
    }

    /// A node has got the release of the owner before this one, and now gets the proposal.
    fn follow(
        &mut self,
        at: EventTime,
        owner: &Owner,
        number: u64,
        node: usize,
        effects: &mut Vec<QuorumEffect<C>>,
    ) {
        let (owners, mut context) = self.context(at, owner, effects);
        let Some(record) = owners.get(owner) else {
            return;
        };
        let is_current = |attempt: &Attempt<C>| attempt.number == number;
        if record.waits_for[node] && record.attempt.as_ref().is_some_and(is_current) {
            context.propose(record, |to| to == node);
        }
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

    /// The records of all owners, and beside them the parts that an acquisition of this owner uses.
    fn context<'a>(
        &'a mut self,
        at: EventTime,
        owner: &'a Owner,
        effects: &'a mut Vec<QuorumEffect<C>>,
    ) -> (&'a mut Owners<C>, Context<'a, C>) {
        let context = Context {
            info: &self.info,
            owner,
            proposer: &mut self.proposer,
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
        let above = |fence: Fence| Fence::new(fence.get() + 1);
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

    /// Sends the current proposal to these nodes. Only the lead queues the owner.
    fn propose(&mut self, record: &mut Record<C>, to: impl Fn(usize) -> bool) {
        let Some(attempt) = &record.attempt else {
            return;
        };
        let open = record.open.iter_mut().enumerate();
        for (node, open) in open.filter(|(node, _)| to(*node)) {
            *open += 1;
            (record.waits_for[node], record.asked[node]) = (false, true);
            self.effects.push(QuorumEffect::Send {
                node,
                name: record.name.clone(),
                step: Step::Propose(Proposal {
                    owner: self.owner.clone(),
                    ttl: attempt.request.ttl,
                    fences: attempt.fences,
                    terms: self.info.terms,
                    wait: attempt.request.wait.filter(|_| node == attempt.lead),
                }),
                purpose: Purpose::Vote {
                    owner: self.owner.clone(),
                    asked: attempt.fences.first,
                },
            });
        }
    }

    fn begin_round(&mut self, record: &mut Record<C>, fences: Fences) {
        if let Some(attempt) = &mut record.attempt {
            attempt.propose(fences);
            self.propose(record, |_| true);
        }
    }

    /// Takes the answer of a node.
    fn heard(&mut self, record: &mut Record<C>, node: usize, asked: Fence, answer: Answer) {
        if let Some(release) = record.release {
            if record.open[node] == 0 {
                let release = release.at(&record.votes[node]);
                let party = Party {
                    owner: self.owner,
                    name: &record.name,
                };
                let late_until = record.late_until[node];
                let release = release_at(node, party, release, late_until, self.at.now);
                self.effects.push(release);
            }
            return;
        }
        let is_waited_for = match &answer {
            Ok(Reply::Held(held)) => held.queued > 0,
            Ok(Reply::Busy(busy)) => busy.ahead > 0,
            _ => false,
        };
        if is_waited_for {
            self.wanted.note(record.name.key(), self.at.now);
        }
        match &mut record.attempt {
            Some(attempt) if attempt.asks(asked) => {
                let verdict = attempt.heard(node, answer);
                self.proceed(record, verdict);
            }
            // The current round asks this node again.
            Some(_) => {}
            None if record.certified.is_some() => record.hears_bounds(node, &answer),
            None if record.keeps_votes => {}
            None => self.give_back(record),
        }
    }

    fn proceed(&mut self, record: &mut Record<C>, verdict: Verdict) {
        let Some(attempt) = &mut record.attempt else {
            return;
        };
        match verdict {
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
            Verdict::Refused(refusal) => self.refused(record, refusal),
        }
    }

    /// A majority has voted for the owner. If the lead alone holds it for another, that one is first in line.
    fn certified(&mut self, record: &mut Record<C>) {
        let Some(attempt) = &record.attempt else {
            return;
        };
        // A failure of the lead is an answer, too (V4).
        let waits_for_lead = attempt.lead_said().is_none() && !attempt.request.is_claim;
        if waits_for_lead && self.wanted.is_wanted(&record.name, self.at.now) {
            // The lead knows whether others are first in line (V5).
            return;
        }
        if let Some(NodeReply::Busy(busy)) = attempt.lead_said() {
            if !self.stuck.is_stuck(&record.name, busy, self.at.now) {
                return self.busy(record, None);
            }
        } else {
            self.stuck.forget(&record.name);
        }
        if let Some(mut attempt) = record.attempt.take() {
            (record.certified, record.granted) = (Some(attempt.fences), None);
            let Fences { first, block } = attempt.fences;
            let held = Held {
                fence: Some(first),
                block,
                queued: attempt.queued,
            };
            self.answer(&mut attempt, Ok(Reply::Held(held)));
        }
    }

    /// No majority can be had now.
    fn refused(&mut self, record: &mut Record<C>, refusal: Refusal) {
        let Some(attempt) = &mut record.attempt else {
            return;
        };
        match (refusal, attempt.lead_said()) {
            // Its next answer decides whether this client may keep its votes.
            (Refusal::Busy, None) => {}
            (Refusal::Busy, Some(NodeReply::Vote)) => {
                let has_time = self.at.now.since(attempt.began) < attempt.request.ttl.get() / 3;
                if attempt.is_pausing {
                } else if attempt.tries < TRIES && has_time {
                    let pause = FIRST_PAUSE * (1 << attempt.tries.min(16));
                    attempt.tries += 1;
                    attempt.is_pausing = true;
                    let pause = jittered(pause.min(LONGEST_PAUSE));
                    let timer = QuorumTimer::Retry(self.owner.clone(), attempt.number);
                    self.effects.push(QuorumEffect::Wake(pause, timer));
                } else {
                    self.busy(record, Some(UNQUEUED));
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

    /// Reports that the lock is busy. The client gives back its votes, unless it waits with the vote of the lead (V3).
    fn busy(&mut self, record: &mut Record<C>, poll_after: Option<Duration>) {
        let Some(mut attempt) = record.attempt.take() else {
            return;
        };
        let keeps =
            attempt.request.wait.is_some() && matches!(attempt.lead_said(), Some(NodeReply::Vote));
        record.keeps_votes = keeps;
        if !keeps {
            self.give_back(record);
        }
        let answer = match attempt.busy() {
            Some(busy) if attempt.request.is_claim => Ok(Reply::NotHeld(Some(busy.holder))),
            Some(busy) => Ok(Reply::Busy(Busy {
                poll_after: poll_after.unwrap_or(busy.poll_after),
                ahead: if keeps { 0 } else { busy.ahead },
                ..busy
            })),
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
        for (node, votes) in record.votes.iter_mut().enumerate() {
            for fence in std::mem::take(votes) {
                record.back.begin(fence);
                let party = Party {
                    owner: self.owner,
                    name: &record.name,
                };
                let late_until = record.late_until[node];
                let undo = give_back_at(node, party, fence, late_until, self.at.now);
                self.effects.push(undo);
            }
        }
    }
}
