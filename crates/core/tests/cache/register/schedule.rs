//! One schedule: a few processes, a network that delays, repeats and loses, and a store that forgets. Loaders read the register
//! at any time after their grant, and commit at any time after that.

use leasehold_core::cache::{
    Begin, Body, Commit, CommitOutcome, EntryState, Format, Reply, Standing, Step, Token, Value,
    Version,
};
use leasehold_core::{ClientId, Now};
use testkit::Rng;

use super::judge::{Judge, Seen, Written};
use crate::play::ttl;

const PROCESSES: usize = 4;
const STEPS: usize = 60;
const LEASE_MS: u64 = 2_000;
const FRESH_MS: u64 = 10_000;
const STALE_MS: u64 = 5_000;
const BACK_OFF_MS: u64 = 1_000;

/// The state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Nothing,
    /// It has asked, without a reply so far.
    Asking,
    /// It is the loader.
    Loading(Version),
    /// It has read the register.
    Read(Version, Written),
}

#[derive(Debug, Clone, Copy)]
struct Process {
    doing: Doing,
    token: u128,
    seen: Version,
    over: bool,
}

/// A request in flight.
struct Request {
    from: usize,
    step: Step,
    /// An invalidation, with the number that its writer had written.
    written: Written,
    repeated: bool,
}

struct Schedule<'a> {
    rng: Rng,
    state: EntryState,
    now: Now,
    judge: Judge,
    processes: [Process; PROCESSES],
    network: Vec<Request>,
    tokens: u128,
    bodies: Vec<Body>,
    /// The wall clock may be set back when the control is lost: in every fourth schedule.
    steps_back: bool,
    tally: &'a mut Seen,
}

/// Plays the schedule with this number.
pub(super) fn run(seed: u64, tally: &mut Seen) -> Result<(), String> {
    let process = Process {
        doing: Doing::Nothing,
        token: 0,
        seen: Version::default(),
        over: false,
    };
    let mut schedule = Schedule {
        rng: Rng::new(seed),
        state: EntryState::default(),
        now: Now::at_micros(1_700_000_000_000_000),
        judge: Judge::default(),
        processes: [process; PROCESSES],
        network: Vec::new(),
        tokens: 0,
        bodies: Vec::new(),
        steps_back: seed.is_multiple_of(4),
        tally,
    };
    for step in 0..STEPS {
        let happens = schedule.happens();
        happens.map_err(|why| format!("schedule {seed}, step {step}: {why}"))?;
    }
    Ok(())
}

impl Schedule<'_> {
    fn happens(&mut self) -> Result<(), String> {
        match self.rng.below(40) {
            0..20 => {
                let at = self.rng.index(PROCESSES);
                self.acts(at)
            }
            20..27 => self.arrives(),
            27..30 => {
                self.judge.register += 1;
                self.invalidates()
            }
            30..36 => {
                self.passes();
                Ok(())
            }
            36 => {
                self.crashes();
                Ok(())
            }
            37 if self.rng.one_in(2) => {
                self.forgets();
                Ok(())
            }
            _ => self.reads(),
        }
    }

    /// The fast path: a GET.
    fn reads(&mut self) -> Result<(), String> {
        let fresh = |value: &&Value| value.standing(self.now) == Standing::Fresh;
        match self.state.look(self.now).filter(fresh) {
            Some(value) => {
                self.tally.fresh += 1;
                self.judge.fresh("GET", written(value))
            }
            None => Ok(()),
        }
    }

    fn acts(&mut self, at: usize) -> Result<(), String> {
        let Process { doing, token, .. } = self.processes[at];
        let token = Token(token);
        let step = match doing {
            Doing::Nothing => {
                self.tokens += 1;
                let over = self.rng.one_in(4);
                let process = &mut self.processes[at];
                (process.doing, process.token, process.over) = (Doing::Asking, self.tokens, over);
                self.begin(at)
            }
            // A retry, with the same token.
            Doing::Asking => self.begin(at),
            Doing::Loading(_) | Doing::Read(..) if self.rng.one_in(8) => Step::Renew {
                token,
                lease: ttl(LEASE_MS),
            },
            Doing::Loading(_) if self.rng.one_in(8) => {
                self.processes[at].doing = Doing::Nothing;
                let failed = (ttl(BACK_OFF_MS), String::new());
                let back_off = Some(failed).filter(|_| !self.rng.one_in(4));
                Step::Abandon { token, back_off }
            }
            Doing::Loading(version) => {
                self.processes[at].doing = Doing::Read(version, self.judge.register);
                return Ok(());
            }
            Doing::Read(version, written) => {
                let commit = self.commit(token, version, written);
                Step::Commit(commit)
            }
        };
        self.sends(at, step, 0)
    }

    fn begin(&self, at: usize) -> Step {
        let Process {
            token, seen, over, ..
        } = self.processes[at];
        Step::Begin(Begin {
            token: Token(token),
            seen,
            over,
            lease: ttl(LEASE_MS),
            listener: Some(ClientId::new(at as u64)),
        })
    }

    fn commit(&mut self, token: Token, version: Version, written: Written) -> Commit {
        for next in self.bodies.len()..=written as usize {
            let text = u32::try_from(next).unwrap().to_le_bytes();
            self.bodies.push(Body::from(text.as_slice()));
        }
        Commit {
            token,
            version,
            fresh_ms: FRESH_MS,
            stale_ms: if self.rng.one_in(4) { 0 } else { STALE_MS },
            load_ms: 1,
            format: Format::Raw,
            body: self.bodies[written as usize].clone(),
        }
    }

    /// The last writer invalidates, now or later.
    fn invalidates(&mut self) -> Result<(), String> {
        let remove = self.rng.one_in(4);
        let written = self.judge.register;
        self.sends(usize::MAX, Step::Invalidate { remove }, written)
    }

    /// Now, later, or both.
    fn sends(&mut self, from: usize, step: Step, written: Written) -> Result<(), String> {
        let fate = self.rng.below(8);
        let request = |step, repeated| Request {
            from,
            step,
            written,
            repeated,
        };
        match fate {
            0..5 => return self.takes(&request(step, false)),
            5 => {
                self.network.push(request(step.clone(), true));
                return self.takes(&request(step, false));
            }
            _ => self.network.push(request(step, false)),
        }
        Ok(())
    }

    fn arrives(&mut self) -> Result<(), String> {
        if self.network.is_empty() {
            return Ok(());
        }
        let at = self.rng.index(self.network.len());
        let request = self.network.swap_remove(at);
        if self.rng.one_in(12) {
            self.tally.requests_lost += 1;
            return Ok(());
        }
        self.takes(&request)?;
        if self.rng.one_in(6) {
            self.network.push(Request {
                repeated: true,
                ..request
            });
        }
        Ok(())
    }

    /// The store takes a step. Its reply is judged, whether or not it arrives.
    fn takes(&mut self, request: &Request) -> Result<(), String> {
        let loads = self.loading();
        let outcome = self.state.apply(self.now, &request.step);
        match (&request.step, &outcome.reply) {
            (Step::Invalidate { .. }, _) => {
                self.tally.invalidated_during_load += u64::from(loads > 0);
                self.judge.invalidated(request.written);
            }
            (_, Reply::Fresh(value)) => {
                self.tally.fresh += 1;
                self.judge.fresh("begin", written(value))?;
            }
            (Step::Commit(commit), Reply::Committed(kept)) => {
                self.tally.repeated_commits += u64::from(request.repeated);
                self.kept(commit, *kept)?;
            }
            _ => {}
        }
        // After each step, check the value that a plain GET would return.
        self.reads()?;
        if request.from < PROCESSES {
            self.hears(request, &outcome.reply);
        }
        Ok(())
    }

    fn kept(&mut self, commit: &Commit, kept: CommitOutcome) -> Result<(), String> {
        let value = body(&commit.body);
        self.tally.loaded_an_old_value += u64::from(value < self.judge.register);
        match kept {
            CommitOutcome::Fresh(soft_ms) if soft_ms > self.now.millis() => {
                let control = self.state.control.as_ref();
                let late = control.is_some_and(|control| control.last > commit.version);
                self.tally.late_and_kept += u64::from(late);
                return self.judge.fresh("commit", value);
            }
            CommitOutcome::Fresh(_) => {}
            CommitOutcome::Stale => self.tally.stored_as_stale += 1,
            CommitOutcome::Overtaken => self.tally.overtaken += 1,
        }
        Ok(())
    }

    fn hears(&mut self, request: &Request, reply: &Reply) {
        if self.rng.one_in(10) {
            self.tally.answers_lost += 1;
            return;
        }
        let second = self.loading() > 0;
        let process = &mut self.processes[request.from];
        let asked = match &request.step {
            Step::Begin(begin) => begin.token,
            Step::Commit(commit) => commit.token,
            _ => return,
        };
        if asked != Token(process.token) {
            return;
        }
        match (process.doing, reply) {
            (Doing::Asking, Reply::Load { version, .. }) => {
                self.tally.second_loaders += u64::from(second);
                process.doing = Doing::Loading(*version);
            }
            (Doing::Asking, Reply::Fresh(value)) => {
                process.seen = process.seen.max(value.header.version);
                process.doing = Doing::Nothing;
            }
            // A waiter asks again, with the same token.
            (Doing::Asking, Reply::Busy { .. }) => self.tally.waited += 1,
            (Doing::Asking, Reply::BackOff { .. }) => {
                self.tally.backed_off += 1;
                process.doing = Doing::Nothing;
            }
            (Doing::Read(version, _), Reply::Committed(_)) => {
                process.seen = process.seen.max(version);
                process.doing = Doing::Nothing;
            }
            _ => {}
        }
    }

    fn passes(&mut self) {
        let micros = match self.rng.below(8) {
            0 => LEASE_MS * 1_000,
            1 => (LEASE_MS + 1) * 1_000,
            2 => BACK_OFF_MS * 1_000,
            3 if self.rng.one_in(4) => FRESH_MS * 1_000,
            3 if self.rng.one_in(4) => 16 * 60 * 1_000_000,
            // Within a microsecond, numbers are counted.
            4 => 0,
            _ => self.rng.below(400_000),
        };
        self.now.clock_us += micros;
        self.now.wall_us += micros;
    }

    fn crashes(&mut self) {
        let at = self.rng.index(PROCESSES);
        let process = &mut self.processes[at];
        let loads = matches!(process.doing, Doing::Loading(_) | Doing::Read(..));
        self.tally.crashes_during_load += u64::from(loads);
        process.doing = Doing::Nothing;
    }

    /// The control, the value or both are lost. K2 requires that the wall clock has then passed the last number; or the clock is
    /// set back by a day, which is longer than any load.
    fn forgets(&mut self) {
        let what = self.rng.below(3);
        self.tally.losses_during_load += u64::from(self.loading() > 0 && what != 1);
        if what != 0 {
            self.state.value = None;
        }
        if what != 1 {
            self.state.control = None;
            self.now.clock_us += 1_000;
            self.now.wall_us += 1_000;
            if self.steps_back && self.rng.one_in(2) {
                self.now.wall_us -= 24 * 3_600_000_000;
                self.tally.clock_steps_during_load += u64::from(self.loading() > 0);
            }
        }
    }

    fn loading(&self) -> usize {
        let loads =
            |process: &&Process| matches!(process.doing, Doing::Loading(_) | Doing::Read(..));
        self.processes.iter().filter(loads).count()
    }
}

fn written(value: &Value) -> Written {
    body(&value.body)
}

fn body(body: &Body) -> Written {
    Written::from_le_bytes(body[..].try_into().unwrap())
}
