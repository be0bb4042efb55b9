//! A client of a simulation: the state machine, its clock and its users. The client carries out effects as the engine does.

mod hearing;
mod leases;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::{ClientId, LockName, Mode, Owner, Step, Ttl};
use tokio::sync::oneshot;

use self::leases::Leases;
use super::user::{End, Kinds, Stage, User, end, request};
use crate::clock::{Clock, Moment};
use crate::lease::effects::{Effect, ReleaseReply, To};
use crate::lease::hold::Hold;
use crate::lease::identity::Identity;
use crate::lease::keeper::tell;
use crate::lease::machine::{About, Event, Machine, Release};
use crate::lease::settle::Settle;
use crate::lease::waiter::WaitLimit;
use crate::telemetry::Telemetry;

/// A user gets its reply at most this long after its time limit.
const ANSWER: Duration = Duration::from_secs(6);

/// The fate of a lease at the server.
pub(super) struct Fate {
    /// Its owner was released.
    pub(super) was_freed: bool,
    /// It was broken, or granted by a server that was replaced.
    pub(super) is_excused: bool,
    /// The server's time of day was set. From it, the server computes since when a lock is held.
    pub(super) was_set: bool,
}

/// How fast the clock of a client runs.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// Its first reading.
    begun: u64,
    thousandths: u64,
}

impl Pace {
    /// The reading of the clock at `at`.
    fn shows(self, at: u64) -> Moment {
        Moment::from_micros(self.begun + at * self.thousandths / 1_000)
    }

    /// When the clock will show `moment`.
    pub(super) fn at(self, moment: Moment) -> u64 {
        let passed = moment.as_micros().saturating_sub(self.begun);
        (passed * 1_000).div_ceil(self.thousandths)
    }
}

/// A lock that must stay taken.
pub(super) struct Stays {
    pub(super) name: LockName,
    pub(super) owner: Owner,
    pub(super) until: Moment,
    /// Of a reader: its stay. The server hears of it from the last reader.
    pub(super) stay: Option<Arc<Hold>>,
}

pub(super) struct Client {
    pub(super) id: ClientId,
    pub(super) machine: Machine,
    pub(super) users: Vec<User>,
    /// For each user that detaches its lease: until when the store may carry out a late request for that lease.
    unsettled: Vec<Option<Moment>>,
    pub(super) clock: Clock,
    /// Owners of detached leases. The client does not undo their late requests.
    pub(super) detached: HashSet<Owner>,
    pub(super) pace: Pace,
    next_id: u64,
    /// Until when the client is paused.
    pub(super) paused_until: u64,
    /// Until when it handles no timers.
    pub(super) timers_paused_until: u64,
    pub(super) is_dead: bool,
    /// Locks that must stay taken.
    pub(super) stays: Vec<Stays>,
    /// Owners for which a release was sent.
    given_up: HashSet<Owner>,
    pub(super) is_closed: bool,
    /// True if the store notifies this client when others wait for its locks.
    pub(super) tells_wanted: bool,
    leases: Leases,
    /// Has no observers.
    telemetry: Telemetry,
    /// Steps to send.
    pub(super) outbox: Vec<(LockName, Step, To)>,
    /// A fault that `hear` found.
    pub(super) fault: Option<String>,
}

impl Client {
    /// A client whose clock runs at one of these rates, in thousandths of the time of the simulation.
    pub(super) fn new(rng: &mut Rng, names: &[LockName], rates: Range<u64>) -> Self {
        let identity = Arc::new(Identity::seeded(rng.u64(..), rng.u64(..)));
        let about = About {
            store: "simulated:".into(),
            outage_timeout: Duration::from_secs(rng.u64(1..60)),
            request_timeout: Duration::from_secs(2),
        };
        let clock = Clock::manual();
        let users = (0..rng.usize(1..4)).map(|_| {
            let name = &names[rng.usize(0..names.len())];
            User::new(name.clone(), rng.u32(1..4))
        });
        let users: Vec<_> = users.collect();
        Self {
            id: identity.client,
            machine: Machine::new(about, identity, clock.clone()),
            detached: HashSet::new(),
            unsettled: vec![None; users.len()],
            users,
            pace: Pace {
                begun: clock.now().as_micros(),
                thousandths: rng.u64(rates),
            },
            clock,
            next_id: 0,
            paused_until: 0,
            timers_paused_until: 0,
            is_dead: false,
            stays: Vec::new(),
            given_up: HashSet::new(),
            is_closed: false,
            tells_wanted: rng.u32(0..4) > 0,
            leases: Leases::default(),
            telemetry: Telemetry::default(),
            outbox: Vec::new(),
            fault: None,
        }
    }

    pub(super) fn add(&mut self, users: Vec<User>) {
        self.users.extend(users);
        self.unsettled.resize(self.users.len(), None);
    }

    /// Moves its clock to the reading for the time `at` of the simulation.
    pub(super) fn tick(&self, at: u64) {
        let shows = self.pace.shows(at);
        self.clock.advance(shows.since(self.clock.now()));
    }

    /// Gives an event to the machine and carries out the effects.
    pub(super) fn handle(&mut self, event: Event) {
        let now = self.clock.now();
        self.leases.before(&event, now);
        self.machine.handle(now, event);
        let effects = self.machine.effects.take();
        self.fault = self.fault.take().or(self.leases.after(&effects, now));
        for effect in effects {
            self.check_keeps(&effect, now);
            let outbox = &mut self.outbox;
            let send = |name, step, to| outbox.push((name, step, to));
            if let Some(hold) = carry_out(effect, &self.telemetry, send) {
                self.release(&hold, None, None);
            }
        }
    }

    /// Checks that the first release of a stay keeps the lock if one of its readers wants that (U3).
    fn check_keeps(&mut self, effect: &Effect, now: Moment) {
        if let Effect::Send {
            step: Step::Release { owner, keep, .. },
            ..
        } = effect
            && self.given_up.insert(owner.clone())
            && keep.is_none()
        {
            let keeps = |stay: &Arc<Hold>| !stay.is_lost() && !stay.is_past();
            let mut stays = self.stays.iter();
            if stays.any(|stays| {
                stays.owner == *owner && stays.until > now && stays.stay.as_ref().is_some_and(keeps)
            }) {
                let fault = format!("U3: {} is released, and not kept", owner.id());
                self.fault.get_or_insert(fault);
            }
        }
    }

    /// Until when it handles no events, or no timers.
    pub(super) fn stands_still_until(&self, is_timer: bool) -> u64 {
        let timers = if is_timer {
            self.timers_paused_until
        } else {
            0
        };
        self.paused_until.max(timers)
    }

    /// How long a renewed lease still has, in the time of the simulation.
    pub(super) fn left(&self, owner: &Owner, at: u64) -> u64 {
        let deadline = self.leases.deadline(owner);
        deadline.map_or(0, |until| self.pace.at(until).saturating_sub(at))
    }

    /// Checks the leases in use.
    pub(super) fn check_leases(&mut self) -> Result<(), String> {
        let next = self.machine.effects.next();
        let all_passed = next.is_none_or(|next| next.at > self.clock.now());
        for hold in self.users.iter().filter_map(User::hold) {
            self.leases.check(hold, all_passed)?;
        }
        Ok(())
    }

    fn release(&mut self, hold: &Arc<Hold>, keep: Option<Ttl>, verdict: Option<ReleaseReply>) {
        let tells_wanted = || self.tells_wanted;
        if let Some(release) = Release::once(hold, keep, verdict, tells_wanted) {
            self.handle(Event::Released(release));
        }
    }

    /// Makes the next move of a user. Returns its description for the story.
    pub(super) fn moves(
        &mut self,
        user: usize,
        rng: &mut Rng,
        kinds: Option<&mut Kinds>,
    ) -> &'static str {
        match std::mem::replace(&mut self.users[user].stage, Stage::Idle) {
            Stage::Idle if self.users[user].left == 0 => {
                self.users[user].becomes(Stage::Over);
                "is done"
            }
            Stage::Idle => {
                let mode = kinds.map_or(Mode::Exclusive, Kinds::draw);
                self.asks(user, rng, mode);
                match mode {
                    Mode::Exclusive => "asks",
                    Mode::Shared => "asks to read",
                    Mode::Slot(_) => "asks for a slot",
                }
            }
            Stage::Asks {
                id,
                mut answer,
                waits,
                leaves,
                mode,
            } => {
                if !leaves {
                    self.users[user].stage = Stage::Asks {
                        id,
                        answer,
                        waits,
                        leaves,
                        mode,
                    };
                    return "waits";
                }
                answer.close();
                self.users[user].becomes(Stage::Idle);
                match answer.try_recv() {
                    Ok(Ok(Some(hold))) => self.release(&hold, None, None),
                    Ok(_) => {}
                    Err(_) => {
                        let name = self.users[user].name.clone();
                        self.handle(Event::Left(name, id));
                    }
                }
                "goes away"
            }
            Stage::Works(hold) => self.ends(user, hold, rng),
            Stage::Detaches(hold, keep, _) => {
                // As `Lease::detach` does when its future is dropped.
                let until = self.unsettled[user].take();
                let work = Settle::of(
                    hold.name.clone(),
                    hold.owner.clone(),
                    keep.max(hold.ttl),
                    until,
                );
                self.users[user].becomes(Stage::Idle);
                hold.take_back();
                self.handle(Event::Undone(Settle {
                    keep: hold.left_to_keep(self.clock.now()),
                    fence: Some(hold.grant),
                    ..work
                }));
                "does not wait until it is detached"
            }
            Stage::Extends(hold, _) => {
                self.users[user].becomes(Stage::Works(hold));
                "does not wait until it is renewed"
            }
            Stage::Ends(..) => {
                self.users[user].becomes(Stage::Idle);
                "does not wait for the verdict"
            }
            Stage::Over => {
                self.users[user].stage = Stage::Over;
                "is done"
            }
        }
    }

    fn asks(&mut self, user: usize, rng: &mut Rng, mode: Mode) {
        let request = request(rng, &self.users[user].name, mode);
        let limit = match request.limit {
            WaitLimit::Once => Some(Duration::ZERO),
            WaitLimit::Within(limit) => Some(limit),
            WaitLimit::Forever => None,
        };
        let due = |limit| self.clock.now().after(limit + ANSWER);
        self.users[user].due = limit.map(due);
        let (answer, answered) = oneshot::channel();
        let (id, once) = (self.next_id, request.is_once());
        self.next_id += 1;
        self.users[user].left -= 1;
        self.users[user].becomes(Stage::Asks {
            id,
            answer: answered,
            waits: !once,
            leaves: rng.u32(0..5) == 0,
            mode,
        });
        self.handle(Event::Asked(id, request, answer));
    }

    fn ends(&mut self, user: usize, hold: Arc<Hold>, rng: &mut Rng) -> &'static str {
        let (reply, verdict) = oneshot::channel();
        let (ends, now) = (end(rng), self.clock.now());
        let ends = match ends {
            // Only one that is alone can be detached.
            End::Detach(ttl) if hold.mode != Mode::Exclusive => End::Keep(ttl),
            ends => ends,
        };
        if rng.u32(0..6) == 0 {
            hold.keep_at_least(Duration::from_millis(rng.u64(1..4_000)));
        }
        let least = hold.left_to_keep(now);
        let keep = match ends {
            End::Keep(keep) => Some(keep).max(least),
            End::Release => least,
            End::Drop | End::Extend(_) | End::Detach(_) => None,
        };
        // The clocks of client and server run at different speeds, so the check covers only 98 % of the time.
        let agreed = |keep: Ttl| now.after(keep.get() * 98 / 100);
        self.users[user].keep = keep.map(agreed);
        let (keep, said) = match ends {
            End::Extend(ttl) => {
                let owner = hold.owner.clone();
                // As `Lease::extend` does.
                hold.follow_until(now.after(ttl.get()));
                self.leases.asks(&hold, ttl, now);
                self.users[user].becomes(Stage::Extends(hold, verdict));
                self.handle(Event::Extended(owner, ttl, reply));
                return "renews by hand";
            }
            End::Detach(ttl) => {
                self.unsettled[user] = hold.unsettled_until();
                hold.detach();
                self.users[user].becomes(Stage::Detaches(hold.clone(), ttl, Some(verdict)));
                self.release(&hold, Some(ttl), Some(reply));
                return "detaches";
            }
            End::Drop => {
                self.users[user].becomes(Stage::Idle);
                self.release(&hold, None, None);
                return "drops its lease";
            }
            End::Release => (None, "releases"),
            End::Keep(ttl) => (Some(ttl), "releases, to be kept"),
        };
        self.users[user].becomes(Stage::Ends(hold.clone(), verdict));
        self.release(&hold, keep, Some(reply));
        said
    }
}

/// Carries out the effects of a machine that concern no caller. A lease without a caller comes back.
fn carry_out(
    effect: Effect,
    telemetry: &Telemetry,
    send: impl FnOnce(LockName, Step, To),
) -> Option<Arc<Hold>> {
    match effect {
        Effect::Send { name, step, to } => send(name, step, to),
        Effect::Grant(waiter, hold) => return waiter.served(hold).err(),
        Effect::Busy(waiter) => waiter.busy(),
        Effect::Refuse(waiter, error) => waiter.fail(&error),
        Effect::Extended(callers, verdict) => tell(callers, &verdict),
        Effect::Released(pending_release, result) => pending_release.tell(telemetry, result),
        Effect::Gone(_)
        | Effect::Watch(..)
        | Effect::Index(_)
        | Effect::Forgotten(_)
        | Effect::Ended(..)
        | Effect::Renewed(..)
        | Effect::InLine(..) => {}
    }
    None
}
