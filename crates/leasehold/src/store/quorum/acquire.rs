//! Acquires a lock: rounds of proposals until a majority has voted for one, or none can be had.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::quorum::{Proposal, Proposer, Refusal, Verdict};
use leasehold_core::{Acceptable, Block, Busy, Fence, Fences, Held, LockName, Owner, Reply, Step};

use super::attempt::{Attempt, NodeReply, ROUNDS, Request, TRIES};
use super::owners::{OwnerRelease, Record};
use super::refusal::refusal_error;
use super::state::{Quorum, State};
use super::stuck::Stuck;
use crate::backoff::jittered;
use crate::clock::Moment;
use crate::store::contract::{Answer, Done};

/// The first pause before a client with the vote of the lead asks the other nodes again, and the longest one. It doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// When a waiter asks again that waits in no queue.
const UNQUEUED: Duration = Duration::from_millis(50);

/// The effect of an event on an acquisition. It is carried out when no lock is held.
pub(super) enum Act {
    /// Sends a proposal.
    Propose(usize, Proposal),
    /// Gives back a vote.
    GiveBack(usize, Fence),
    /// Releases the owner at a node that has answered (V2).
    Release(usize, OwnerRelease),
    Answer(Done, Answer),
    /// Begins another round of this attempt after a pause.
    Retry(Duration, u64),
}

/// The parts of the state that an acquisition uses, and its surroundings.
struct Context<'a> {
    quorum: &'a Quorum,
    owner: &'a Owner,
    proposer: &'a mut Proposer,
    stuck: &'a mut Stuck,
    now: Moment,
    acts: Vec<Act>,
}

impl Quorum {
    /// Asks for the lock.
    pub(super) fn acquire(
        self: &Arc<Self>,
        name: &LockName,
        owner: &Owner,
        request: Request,
        done: Done,
    ) {
        let now = self.clock.now();
        let (acts, superseded) = {
            let mut state = self.lock();
            let State {
                proposer,
                leads,
                owners,
                stuck,
                next_attempt,
            } = &mut *state;
            *next_attempt += 1;
            let lead = leads.of(name);
            let record = owners.entry(owner, name, request.ttl.get(), now);
            let mut context = Context {
                quorum: self,
                owner,
                proposer,
                stuck,
                now,
                acts: Vec::new(),
            };
            let fences = context.choose(request.block, record, None);
            record.keeps_votes = false;
            let superseded = record.attempt.replace(Attempt {
                lead,
                ..Attempt::new(*next_attempt, self.nodes.len(), request, done, now, fences)
            });
            context.propose(record);
            (context.acts, superseded)
        };
        self.perform(name, owner, acts);
        // Its votes are those of the new attempt. It has no answer of its own.
        drop(superseded);
    }

    /// A node has answered the proposal of `asked`.
    fn voted(
        self: &Arc<Self>,
        name: &LockName,
        owner: &Owner,
        (node, asked): (usize, Fence),
        answer: Answer,
    ) {
        let now = self.clock.now();
        let acts = {
            let mut state = self.lock();
            let State {
                proposer,
                leads,
                owners,
                stuck,
                ..
            } = &mut *state;
            leads.heard(node, answer.is_ok());
            let Some(record) = owners.get(owner) else {
                return;
            };
            record.open[node] = record.open[node].saturating_sub(1);
            match &answer {
                Ok(Reply::Held(held)) => record.has_vote(node, held.fence.unwrap_or(asked)),
                Err(error) if error.may_have_taken_effect => record.may_have_vote(node, asked),
                _ => {}
            }
            let mut context = Context {
                quorum: self,
                owner,
                proposer,
                stuck,
                now,
                acts: Vec::new(),
            };
            context.heard(record, (node, asked), answer);
            let acts = context.acts;
            owners.tidy(owner);
            acts
        };
        self.perform(name, owner, acts);
    }

    /// The pause of an attempt is over.
    fn retry(self: &Arc<Self>, name: &LockName, owner: &Owner, number: u64) {
        let now = self.clock.now();
        let acts = {
            let mut state = self.lock();
            let State {
                proposer,
                owners,
                stuck,
                ..
            } = &mut *state;
            let Some(record) = owners.get(owner) else {
                return;
            };
            let request = match &record.attempt {
                Some(attempt) if attempt.number == number => attempt.request,
                _ => return,
            };
            let mut context = Context {
                quorum: self,
                owner,
                proposer,
                stuck,
                now,
                acts: Vec::new(),
            };
            let fences = context.choose(request.block, record, None);
            context.begin_round(record, fences);
            context.acts
        };
        self.perform(name, owner, acts);
    }

    /// Carries out effects.
    pub(super) fn perform(self: &Arc<Self>, name: &LockName, owner: &Owner, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Propose(node, proposal) => {
                    let asked = proposal.fences.first;
                    let (quorum, owner, of) = (self.clone(), owner.clone(), name.clone());
                    self.ask(node, name, Step::Propose(proposal), move |answer| {
                        quorum.voted(&of, &owner, (node, asked), answer);
                    });
                }
                Act::GiveBack(node, fence) => {
                    let owner = owner.clone();
                    self.settle(node, name, Step::GiveBack { owner, fence });
                }
                Act::Release(node, release) => self.release_at(node, name, owner, release),
                Act::Answer(done, answer) => done.answer(answer),
                Act::Retry(pause, number) => {
                    let (quorum, name, owner) = (self.clone(), name.clone(), owner.clone());
                    self.tasks.spawn_aside(async move {
                        quorum.clock.sleep(pause).await;
                        quorum.retry(&name, &owner, number);
                    });
                }
            }
        }
    }
}

impl Context<'_> {
    /// Chooses fences above all that the owner may hold, and within the bounds of the nodes.
    fn choose(&mut self, block: Block, record: &Record, bounds: Option<Acceptable>) -> Fences {
        let wall_us = self.quorum.clock.store_now().wall_us;
        let above = |fence: Fence| Acceptable {
            least: Fence::new(fence.get() + 1),
            most: Fence::MAX,
        };
        let bounds = bounds.or_else(|| record.highest().map(above));
        self.proposer.propose(block, wall_us, bounds)
    }

    /// Sends the current proposal to all nodes. Only the lead queues the owner.
    fn propose(&mut self, record: &mut Record) {
        let Some(attempt) = &record.attempt else {
            return;
        };
        for node in 0..self.quorum.nodes.len() {
            record.open[node] += 1;
            self.acts.push(Act::Propose(
                node,
                Proposal {
                    owner: self.owner.clone(),
                    ttl: attempt.request.ttl,
                    fences: attempt.fences,
                    terms: self.quorum.terms,
                    wait: attempt.request.wait.filter(|_| node == attempt.lead),
                },
            ));
        }
    }

    fn begin_round(&mut self, record: &mut Record, fences: Fences) {
        if let Some(attempt) = &mut record.attempt {
            attempt.propose(fences);
            self.propose(record);
        }
    }

    /// Takes the answer of a node.
    fn heard(&mut self, record: &mut Record, (node, asked): (usize, Fence), answer: Answer) {
        if let Some(release) = &record.release {
            if record.open[node] == 0 {
                self.acts.push(Act::Release(node, release.clone()));
            }
            return;
        }
        match &mut record.attempt {
            Some(attempt) if attempt.asks(asked) => {
                let verdict = attempt.heard(node, answer);
                self.proceed(record, verdict);
            }
            // The current round asks this node again.
            Some(_) => {}
            None if record.certified.is_some() || record.keeps_votes => {}
            None => self.give_back(record),
        }
    }

    fn proceed(&mut self, record: &mut Record, verdict: Verdict) {
        let Some(attempt) = &mut record.attempt else {
            return;
        };
        match verdict {
            Verdict::Open => {}
            Verdict::Certified => self.certified(record),
            Verdict::Again(bounds) if attempt.rounds < ROUNDS => {
                attempt.rounds += 1;
                let block = attempt.request.block;
                let wall_us = self.quorum.clock.store_now().wall_us;
                self.proposer.learn(wall_us, bounds);
                let fences = self.choose(block, record, Some(bounds));
                self.begin_round(record, fences);
            }
            Verdict::Again(_) => self.refused(record, Refusal::ClocksApart),
            Verdict::Refused(refusal) => self.refused(record, refusal),
        }
    }

    /// A majority has voted for the owner. If the lead alone holds it for another, that one is first in line.
    fn certified(&mut self, record: &mut Record) {
        let Some(attempt) = &record.attempt else {
            return;
        };
        if let Some(NodeReply::Busy(busy)) = attempt.lead_said() {
            if !self.stuck.is_stuck(&record.name, &busy.holder, self.now) {
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
    fn refused(&mut self, record: &mut Record, refusal: Refusal) {
        let Some(attempt) = &mut record.attempt else {
            return;
        };
        match (refusal, attempt.lead_said()) {
            // Its next answer decides whether this client may keep its votes.
            (Refusal::Busy, None) => {}
            (Refusal::Busy, Some(NodeReply::Vote)) => {
                let has_time = self.now.since(attempt.began) < attempt.request.ttl.get() / 3;
                if attempt.is_pausing {
                } else if attempt.tries < TRIES && has_time {
                    let pause = FIRST_PAUSE * (1 << attempt.tries.min(16));
                    attempt.tries += 1;
                    attempt.is_pausing = true;
                    let pause = jittered(pause.min(LONGEST_PAUSE));
                    self.acts.push(Act::Retry(pause, attempt.number));
                } else {
                    self.busy(record, Some(UNQUEUED));
                }
            }
            (Refusal::Busy, Some(NodeReply::Busy(_))) => self.busy(record, None),
            (Refusal::Busy, Some(NodeReply::Failed(_) | NodeReply::NoVote(_))) => {
                self.busy(record, Some(UNQUEUED));
            }
            (Refusal::Unavailable | Refusal::ClocksApart, _) => self.fail(record, refusal),
        }
    }

    /// Reports that the lock is busy. The client gives back its votes, unless it waits with the vote of the lead (V3).
    fn busy(&mut self, record: &mut Record, poll_after: Option<Duration>) {
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
            Some(busy) if attempt.request.is_claim => Ok(Reply::NotHeld(Some(busy.holder.clone()))),
            Some(busy) => Ok(Reply::Busy(Busy {
                poll_after: poll_after.unwrap_or(busy.poll_after),
                ahead: if keeps { 0 } else { busy.ahead },
                ..busy.clone()
            })),
            // A round is refused as busy only if a node said so.
            None => Err(refusal_error(self.quorum, &attempt, Refusal::Unavailable)),
        };
        self.answer(&mut attempt, answer);
    }

    /// Reports that the quorum gives no verdict.
    fn fail(&mut self, record: &mut Record, refusal: Refusal) {
        if let Some(mut attempt) = record.attempt.take() {
            self.give_back(record);
            let error = refusal_error(self.quorum, &attempt, refusal);
            self.answer(&mut attempt, Err(error));
        }
    }

    fn answer(&mut self, attempt: &mut Attempt, answer: Answer) {
        if let Some(done) = attempt.done.take() {
            self.acts.push(Act::Answer(done, answer));
        }
    }

    /// Gives back all votes that are known. Those of nodes that have not answered follow with their answers.
    fn give_back(&mut self, record: &mut Record) {
        for (node, votes) in record.votes.iter_mut().enumerate() {
            for fence in votes.drain(..) {
                self.acts.push(Act::GiveBack(node, fence));
            }
        }
    }
}
