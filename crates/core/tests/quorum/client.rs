//! A client of the quorum: it acquires, renews and releases one lock again and again.

use leasehold_core::quorum::{Proposal, Proposer, QuorumTerms, Refusal, Round, Verdict};
use leasehold_core::{Acceptable, Block, ClientId, Fence, Fences, Owner, Reply, Wait};

use crate::clock::Clock;
use crate::judge::Record;
use crate::sim::{BLOCK, Event, MS, Request, Rules, Simulation};

/// One client.
pub(crate) struct Client {
    pub(crate) clock: Clock,
    pub(crate) proposer: Proposer,
    /// How it counts: it names so many of the nodes.
    pub(crate) terms: QuorumTerms,
    pub(crate) now: Doing,
}

/// The state of a client.
pub(crate) enum Doing {
    Nothing,
    Acquiring(Acquiring),
    Holding(Holding),
}

/// An acquisition in progress.
pub(crate) struct Acquiring {
    pub(crate) owner: Owner,
    /// It wants to read.
    pub(crate) is_shared: bool,
    /// The real time of the first request.
    pub(crate) sent: u64,
    pub(crate) fences: Fences,
    pub(crate) round: Round,
    pub(crate) rounds: u32,
    /// The node at which it waits, if it does.
    pub(crate) lead: Option<usize>,
    /// It has given back votes of this round, and asks again later.
    pub(crate) has_stood_back: bool,
    /// The latest number that each node said it holds for the owner, for the rules that look at it.
    pub(crate) highest: Vec<Option<u64>>,
}

/// A lease that the client relies on.
pub(crate) struct Holding {
    pub(crate) owner: Owner,
    /// Its place in the list of leases.
    pub(crate) lease: usize,
    /// The current renewal: its number, when it was sent, and the nodes that confirmed it.
    pub(crate) renewal: (u64, u64, Vec<bool>),
}

impl Client {
    /// The owner that it acts for, if any.
    pub(crate) fn owner(&self) -> Option<&Owner> {
        match &self.now {
            Doing::Nothing => None,
            Doing::Acquiring(acquiring) => Some(&acquiring.owner),
            Doing::Holding(holding) => Some(&holding.owner),
        }
    }
}

impl Simulation {
    pub(crate) fn begin(&mut self, client: usize) {
        self.owners += 1;
        let id = ClientId::new(client as u64);
        let owner = Owner::new(u128::from(self.owners), id, "h", 1, "").unwrap();
        let (fences, nodes) = (self.propose(client, None), self.clients[client].terms.nodes);
        self.clients[client].now = Doing::Acquiring(Acquiring {
            owner: owner.clone(),
            is_shared: self.has_readers && self.rng.one_in(2),
            sent: self.at,
            fences,
            round: Round::new(nodes, fences),
            rounds: 1,
            lead: self.rng.pick(&[None, Some(0), Some(0)]),
            has_stood_back: false,
            highest: vec![None; usize::from(nodes)],
        });
        self.say(|| format!("client {client} begins with {}", fences.first));
        self.ask(client);
        let patience = self.ttl_us / 2;
        self.later(patience, Event::GiveUp(client, owner));
    }

    fn propose(&mut self, client: usize, bounds: Option<Acceptable>) -> Fences {
        let client = &mut self.clients[client];
        let wall_us = client.clock.wall(self.at);
        client
            .proposer
            .propose(Block::nearest(BLOCK), wall_us, bounds)
    }

    fn ask(&mut self, client: usize) {
        let terms = self.clients[client].terms;
        for node in 0..usize::from(terms.nodes) {
            let Doing::Acquiring(acquiring) = &self.clients[client].now else {
                return;
            };
            let waits = acquiring.lead == Some(node);
            let request = Request::Propose(Proposal {
                owner: acquiring.owner.clone(),
                is_shared: acquiring.is_shared,
                ttl: self.ttl,
                fences: acquiring.fences,
                terms,
                wait: waits.then_some(Wait { listening: true }),
            });
            self.send(client, node, &request);
        }
    }

    /// A waiter asks again: it is due, or a node has woken it.
    pub(crate) fn retry(&mut self, client: usize, owner: &Owner) {
        let at = self.at;
        let is_waiting = matches!(&self.clients[client].now, Doing::Acquiring(it) if it.owner == *owner && it.lead.is_some());
        if !is_waiting {
            return;
        }
        let fences = self.propose(client, None);
        let nodes = self.clients[client].terms.nodes;
        if let Doing::Acquiring(acquiring) = &mut self.clients[client].now {
            (acquiring.sent, acquiring.rounds, acquiring.fences) = (at, 1, fences);
            (acquiring.round, acquiring.has_stood_back) = (Round::new(nodes, fences), false);
        }
        self.say(|| format!("client {client} asks again, with {}", fences.first));
        self.ask(client);
    }

    /// Keeps its place at the lead, and gives back the votes of this round: all, or those beside the lead's.
    fn stand_back(&mut self, client: usize, lead: usize) {
        let Doing::Acquiring(acquiring) = &mut self.clients[client].now else {
            return;
        };
        acquiring.has_stood_back = true;
        let owner = acquiring.owner.clone();
        let request = Request::GiveBack(owner.clone(), acquiring.fences.first);
        let keeps_lead = self.rng.one_in(2);
        for node in 0..usize::from(self.clients[client].terms.nodes) {
            if node != lead || !keeps_lead {
                self.send(client, node, &request);
            }
        }
        let pause = self.rng.below(200 * MS);
        self.later(pause, Event::Retry(client, owner));
    }

    pub(crate) fn voted(&mut self, client: usize, node: usize, proposal: &Proposal, reply: &Reply) {
        let (rules, at) = (self.rules, self.at);
        let Doing::Acquiring(acquiring) = &mut self.clients[client].now else {
            return;
        };
        if acquiring.owner != proposal.owner {
            return;
        }
        let mut asked = proposal.fences.first;
        let mut reply = reply.clone();
        if let Reply::Held(held) = &mut reply {
            acquiring.highest[node] = held.fence.map(Fence::get);
            if rules == Rules::LateVotesCount && proposal.fences != acquiring.fences {
                // As if the node had voted on the current proposal.
                asked = acquiring.fences.first;
                held.fence = Some(asked);
            }
        }
        let verdict = acquiring.round.heard(node, asked, &reply);
        let votes = acquiring.highest.iter().flatten();
        let enough = acquiring.round.majority();
        let fence = match rules {
            Rules::HighestVote if votes.clone().count() >= enough => votes.copied().max(),
            Rules::RefusedRoundCounts
                if votes
                    .clone()
                    .filter(|vote| **vote == acquiring.fences.first.get())
                    .count()
                    >= enough =>
            {
                Some(acquiring.fences.first.get())
            }
            Rules::LowestVote if votes.clone().count() >= enough => votes.copied().min(),
            Rules::MinorityReads if acquiring.is_shared && votes.clone().count() + 1 >= enough => {
                votes.copied().max()
            }
            Rules::MinorityIsEnough if votes.clone().count() + 1 >= enough => votes.copied().max(),
            _ => (verdict == Verdict::Certified).then(|| acquiring.fences.first.get()),
        };
        if let Some(fence) = fence {
            self.certified(client, fence);
            return;
        }
        let is_late = asked != acquiring.fences.first;
        match verdict {
            Verdict::Open | Verdict::Certified => {}
            // It has given back its votes already.
            Verdict::Refused(_) if is_late || acquiring.has_stood_back => {}
            Verdict::Again(bounds) if acquiring.rounds < 4 => {
                acquiring.rounds += 1;
                let wall_us = self.clients[client].clock.wall(at);
                self.clients[client].proposer.learn(wall_us, bounds);
                let fences = self.propose(client, Some(bounds));
                let nodes = self.clients[client].terms.nodes;
                if let Doing::Acquiring(acquiring) = &mut self.clients[client].now {
                    acquiring.fences = fences;
                    acquiring.round = Round::new(nodes, fences);
                }
                self.say(|| format!("client {client} proposes {} instead", fences.first));
                self.ask(client);
                if rules == Rules::RoundNotAwaited {
                    self.certified(client, fences.first.get());
                }
            }
            Verdict::Refused(Refusal::Busy) if acquiring.lead.is_some() => {
                let lead = acquiring.lead.unwrap();
                self.stand_back(client, lead);
            }
            Verdict::Again(_) | Verdict::Refused(_) => self.leave(client),
        }
    }

    /// How long the client may rely on a hold that it asked for at `sent`: the TTL less 1 % and a millisecond, on its own clock.
    fn valid_until(&self, client: usize, sent: u64) -> u64 {
        let ttl = self.ttl_us;
        let from = if self.rules == Rules::ValidFromTheReply {
            self.at
        } else {
            sent
        };
        self.clients[client].clock.after(from, ttl - ttl / 100 - MS)
    }

    fn certified(&mut self, client: usize, fence: u64) {
        let Doing::Acquiring(acquiring) = &self.clients[client].now else {
            return;
        };
        let (owner, sent) = (acquiring.owner.clone(), acquiring.sent);
        let is_shared = acquiring.is_shared;
        let ended = self.valid_until(client, sent);
        if self.at >= ended {
            return self.leave(client);
        }
        self.leases.push(Record {
            sent,
            began: self.at,
            ended,
            is_shared,
            fences: (fence, fence + BLOCK - 1),
            is_broken: self.broken.contains(&owner),
            owner: owner.clone(),
        });
        self.clients[client].now = Doing::Holding(Holding {
            owner: owner.clone(),
            lease: self.leases.len() - 1,
            renewal: (0, 0, Vec::new()),
        });
        self.say(|| format!("client {client} has a lease with {fence} until {ended}"));
        let ttl = self.ttl_us;
        let (renew, release) = (ttl / 3, self.rng.below(2 * ttl) + 1);
        self.later(renew, Event::Renew(client, owner.clone()));
        self.later(release, Event::Release(client, owner));
    }

    pub(crate) fn renew(&mut self, client: usize, owner: &Owner) {
        let (at, nodes) = (self.at, usize::from(self.clients[client].terms.nodes));
        let Doing::Holding(holding) = &mut self.clients[client].now else {
            return;
        };
        let is_over = at >= self.leases[holding.lease].ended;
        if holding.owner != *owner || is_over && self.rules != Rules::ExtensionTakes {
            return;
        }
        self.renewals += 1;
        let renewal = self.renewals;
        holding.renewal = (renewal, at, vec![false; nodes]);
        self.send_all(client, &Request::Extend(owner.clone(), renewal));
        let again = self.ttl_us / 3;
        self.later(again, Event::Renew(client, owner.clone()));
    }

    pub(crate) fn extended(&mut self, client: usize, node: usize, renewal: u64, is_held: bool) {
        let Doing::Holding(holding) = &mut self.clients[client].now else {
            return;
        };
        if holding.renewal.0 != renewal || !is_held {
            return;
        }
        holding.renewal.2[node] = true;
        let confirmed = holding.renewal.2.iter().filter(|is_held| **is_held).count();
        let (lease, sent, nodes) = (holding.lease, holding.renewal.1, holding.renewal.2.len());
        let is_over = self.at >= self.leases[lease].ended;
        let is_counted = !is_over || self.rules == Rules::ExtensionTakes;
        if confirmed > nodes / 2 && is_counted {
            let ended = self.valid_until(client, sent);
            self.leases[lease].ended = self.leases[lease].ended.max(ended);
        }
    }

    /// Gives everything back, and begins again later.
    pub(crate) fn leave(&mut self, client: usize) {
        let Some(owner) = self.clients[client].owner().cloned() else {
            return;
        };
        if let Doing::Holding(holding) = &self.clients[client].now {
            let lease = &mut self.leases[holding.lease];
            lease.ended = lease.ended.min(self.at);
        }
        self.clients[client].now = Doing::Nothing;
        self.say(|| format!("client {client} gives everything back"));
        for _ in 0..2 {
            self.send_all(client, &Request::Release(owner.clone()));
        }
        let pause = self.rng.below(300 * MS);
        self.later(pause, Event::Begin(client));
    }
}
