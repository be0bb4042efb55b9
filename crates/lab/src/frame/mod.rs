//! The frame of the models of our own rules. A [`Subject`] is what a tree of models is about; the frame has what they have in
//! common: the time, the action in progress, the exploration, and the shortest trace to a violation.
//!
//! The time is constant: when a tick passes, a subject moves all past and future times by a tick instead. Rules use only distances
//! to now, so equal situations at different times are one state, and no horizon is needed.
//!
//! An exploration that was cut short is never reported as exhausted.

mod calls;

use std::cell::Cell;
use std::fmt::{Debug, Write as _};
use std::hash::{Hash, Hasher};
use std::ops::{ControlFlow, Deref};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold_core::{Invalid, Now};
use stateright::{Checker, HasDiscoveries, Model, Property};

pub(crate) use self::calls::{CallId, MOST_CALLS, Owners, letter};
use crate::report::{Checked, Finding, Judged, Verdict};

/// The constant time.
pub(crate) const NOW: Now = Now::at_micros(3_000_000_000_000);

/// The time so many milliseconds later.
pub(crate) const fn later(ms: u64) -> Now {
    Now::at_micros(NOW.clock_us + ms * 1_000)
}

/// A duration in milliseconds.
pub(crate) const fn millis(duration: Duration) -> u64 {
    duration.as_secs() * 1_000 + duration.subsec_millis() as u64
}

/// How long one model may take before it is cut.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// The size of the exploration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounds {
    /// Takes seconds.
    Ci,
    /// Takes minutes.
    Deep,
}

/// One model: a name and its bounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup<L, F: 'static, R: 'static> {
    pub(crate) name: &'static str,
    /// Bounds that are numbers: clients, times, messages.
    pub(crate) limits: L,
    pub(crate) faults: &'static [F],
    /// The situations that must be reached, fewer than 64; otherwise the model does not show what its name says.
    pub(crate) reaches: &'static [R],
}

/// A setup of a subject.
pub(crate) type SetupOf<S> =
    Setup<<S as Subject>::Limits, <S as Subject>::Fault, <S as Subject>::Situation>;

impl<L, F: Copy + PartialEq, R> Setup<L, F, R> {
    pub(crate) fn may(&self, fault: F) -> bool {
        self.faults.contains(&fault)
    }
}

impl<L, F, R> Deref for Setup<L, F, R> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.limits
    }
}

/// The models of a subject, of this size. Two models never differ in size only.
pub(crate) fn setups<S: Subject>(bounds: Bounds) -> Vec<SetupOf<S>> {
    let mut all = S::MODELS.to_vec();
    if bounds == Bounds::Deep {
        for setup in &mut all {
            setup.limits = S::deeper(setup);
        }
    }
    all
}

/// The names of the models of a subject.
pub(crate) fn names<S: Subject>(bounds: Bounds) -> Vec<&'static str> {
    let all = setups::<S>(bounds);
    all.iter().map(|setup| setup.name).collect()
}

/// Explores the model of this name.
///
/// # Errors
/// [`Invalid`] if there is none.
pub(crate) fn check_one<S: Subject>(
    bounds: Bounds,
    name: &str,
    subject: impl FnOnce(&SetupOf<S>) -> Result<S, Invalid>,
) -> Result<Finding<S::Situation>, Invalid> {
    let mut all = setups::<S>(bounds).into_iter();
    let setup = all.find(|setup| setup.name == name).ok_or_else(|| {
        let names = names::<S>(bounds);
        Invalid::new("model", name, format!("must be one of {names:?}"))
    })?;
    let subject = subject(&setup)?;
    Ok(Framed::of(setup, subject).explore())
}

/// Declares an enum whose values have words for people: the faults of a subject, or what may happen in it.
macro_rules! worded {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $value:ident => $words:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum $name {
            $($(#[$doc])* $value,)*
        }

        impl $name {
            /// Words for people.
            pub(super) const fn words(self) -> &'static str {
                match self {
                    $(Self::$value => $words,)*
                }
            }
        }
    };
}
pub(crate) use worded;

/// The models of a subject, as a table: the name, the limits that differ from those of a plain model, the faults that may happen, and
/// the situations to reach.
macro_rules! models {
    (
        $limits:ident, $fault:ident, $situation:ident, $plain:ident;
        $(
            $name:literal { $($limit:ident: $value:expr),* }
            may [$($may:ident),*]
            reaches [$($reached:ident),*];
        )*
    ) => {
        &[$($crate::frame::Setup {
            name: $name,
            limits: $limits { $($limit: $value,)* ..$plain },
            faults: &[$($fault::$may),*],
            reaches: &[$($situation::$reached),*],
        }),*]
    };
}
pub(crate) use models;

/// The properties of a subject, as a table. Each is a word, then a space and its meaning. It is `kept` by each step, by a rule that is a
/// bit of [`Subject::broken`], or it is a function of the model and a state.
macro_rules! properties {
    ($($name:literal $how:ident $what:expr;)*) => {
        vec![$($crate::frame::properties!(@$how $name, $what)),*]
    };
    (@kept $name:literal, $rule:expr) => {
        stateright::Property::<$crate::frame::Framed<Self>>::always($name, |_, state| {
            <Self as Subject>::broken(state) & $rule as u16 == 0
        })
    };
    (@always $name:literal, $condition:expr) => {
        stateright::Property::<$crate::frame::Framed<Self>>::always($name, $condition)
    };
}
pub(crate) use properties;

/// What a tree of models is about: its rules, and the behaviour of clients, messages and time around them.
pub(crate) trait Subject: Debug + Clone + Send + Sync + 'static {
    /// The bounds of one model that are numbers.
    type Limits: Debug + Copy + Send + Sync;
    /// What else may happen in a model.
    type Fault: Debug + Copy + PartialEq + Send + Sync;
    /// The state at one moment.
    type State: Debug + Clone + PartialEq + Hash + Send + Sync;
    /// What may happen next.
    type Action: Debug + Copy + PartialEq;
    /// The reply of a store.
    type Reply;
    /// What a model may have to reach; otherwise it does not show what its name says.
    type Situation: Debug + Copy + PartialEq + Send + Sync;

    /// The small models.
    const MODELS: &'static [SetupOf<Self>];

    /// The passing of time, and how much of it passes.
    const TICK: (Self::Action, Duration);

    /// The columns of a trace behind the number of the step, and their widths: the time, the action, the reply, and the state.
    const COLUMNS: &'static [(&'static str, usize)];

    /// The limits of a larger version of a model.
    fn deeper(setup: &SetupOf<Self>) -> Self::Limits;

    /// The bounds of a model, for people.
    fn bounds(setup: &SetupOf<Self>) -> String;

    /// The first state.
    fn init(model: &Framed<Self>) -> Self::State;

    /// The properties that the last step violated, a bit each.
    fn broken(state: &Self::State) -> u16;

    /// All actions that are possible in this state.
    fn possible(model: &Framed<Self>, state: &Self::State, into: &mut Vec<Self::Action>);

    /// Carries out an action. `None` if that is out of bounds.
    fn act(turn: &mut Turn<'_, Self>, action: Self::Action) -> Option<()>;

    /// The properties: each is a word, then a space and its meaning.
    fn properties() -> Vec<Property<Framed<Self>>>;

    /// The cells of a trace behind the time: an action in this state, and what came of it.
    fn cells(before: &Self::State, action: Self::Action, after: &Turn<'_, Self>) -> Vec<String>;
}

/// A model: its bounds, its subject, and which of its situations it has reached.
#[derive(Debug, Clone)]
pub(crate) struct Framed<S: Subject> {
    pub(crate) setup: SetupOf<S>,
    pub(crate) subject: S,
    /// The situations that it has reached, a bit each; shared by all copies of the model.
    reached: Arc<AtomicU64>,
}

/// One action in progress.
pub(crate) struct Turn<'a, S: Subject> {
    pub(crate) model: &'a Framed<S>,
    pub(crate) state: S::State,
    /// The last reply, for the trace.
    pub(crate) said: Option<S::Reply>,
    /// The situations that it reaches, a bit each. They count if the state is within the bounds.
    reached: Cell<u64>,
}

impl<'a, S: Subject> Turn<'a, S> {
    pub(crate) fn new(model: &'a Framed<S>, before: &S::State) -> Self {
        Self {
            model,
            state: before.clone(),
            said: None,
            reached: Cell::new(0),
        }
    }

    /// Notes a situation.
    pub(crate) fn reached(&self, situation: S::Situation) {
        let mut all = self.model.setup.reaches.iter();
        if let Some(at) = all.position(|it| *it == situation) {
            self.reached.set(self.reached.get() | 1 << at);
        }
    }

    /// Notes a situation if this is so.
    pub(crate) fn reached_if(&self, is_so: bool, situation: S::Situation) {
        if is_so {
            self.reached(situation);
        }
    }
}

/// Those of these events that are possible.
pub(crate) fn those_possible<E>(
    events: impl IntoIterator<Item = (E, bool)>,
) -> impl Iterator<Item = E> {
    let events = events.into_iter();
    events.filter_map(|(event, is_possible)| is_possible.then_some(event))
}

/// Moves each number of a state to another place. `each` hands out all numbers, and `places` has one for each of these, which ascend.
pub(crate) fn move_numbers<S>(
    state: &mut S,
    each: impl Fn(&mut S, &mut dyn FnMut(&mut u64)),
    places: impl FnOnce(&[u64]) -> Vec<u64>,
) {
    let mut all = Vec::with_capacity(32);
    each(state, &mut |number| all.push(*number));
    all.sort_unstable();
    all.dedup();
    let places = places(&all);
    each(state, &mut |number| {
        let at = all.binary_search(number).unwrap_or_default();
        *number = places[at];
    });
}

/// The rank of each client in an order that does not depend on names. States that differ by the names of clients only shall be equal: they
/// have the same hash, and the checker compares hashes only. `traits` are all that tells a client from others, and go into the hash.
pub(crate) fn ranks<T: Ord + Hash>(
    clients: usize,
    traits: impl Fn(u8) -> T,
    into: &mut impl Hasher,
) -> Vec<u8> {
    let mut sorted: Vec<_> = (0u8..).take(clients).map(|at| (traits(at), at)).collect();
    sorted.sort_unstable();
    let mut ranks = vec![0; clients];
    for (rank, (traits, client)) in (0u8..).zip(sorted) {
        traits.hash(into);
        ranks[usize::from(client)] = rank;
    }
    ranks
}

/// More polls than any bounded wait needs.
const POLLS: usize = 256;

/// Liveness of one waiter: all other clients stop, it polls as told, and time passes by the millisecond. This is the worst case: it
/// receives no wake. Returns after how many milliseconds it has what it waits for, if ever. `poll` says how many milliseconds it pauses, or
/// whether it has that.
pub(crate) fn waits_alone(mut poll: impl FnMut(Now) -> ControlFlow<bool, u64>) -> Option<u64> {
    let mut ms = 0;
    for _ in 0..POLLS {
        match poll(later(ms)) {
            ControlFlow::Continue(pause) => ms += pause,
            ControlFlow::Break(has_it) => return has_it.then_some(ms),
        }
    }
    None
}

impl<S: Subject> Framed<S> {
    pub(crate) fn of(setup: SetupOf<S>, subject: S) -> Self {
        assert!(setup.reaches.len() < 64, "a bit each");
        Self {
            setup,
            subject,
            reached: Arc::default(),
        }
    }

    /// An action, carried out; `None` if it is out of bounds.
    pub(crate) fn step(&self, before: &S::State, action: S::Action) -> Option<Turn<'_, S>> {
        let mut turn = Turn::new(self, before);
        S::act(&mut turn, action)?;
        Some(turn)
    }

    /// Explores everything within the bounds.
    #[expect(
        clippy::disallowed_methods,
        reason = "how long an exploration takes is no lease"
    )]
    fn explore(&self) -> Finding<S::Situation> {
        let begun = Instant::now();
        let seen = self
            .clone()
            .checker()
            .threads(2)
            .finish_when(HasDiscoveries::AnyFailures)
            .timeout(LIMIT)
            .spawn_bfs()
            .join();
        let took = begun.elapsed();
        let found = seen.discoveries();
        let cut = !found.is_empty() || took >= LIMIT;
        let judge = |property: Property<Self>| {
            let verdict = match found.get(property.name) {
                Some(path) => {
                    let actions = self.shortest(property.name, path.clone().into_actions());
                    Verdict::Violated {
                        steps: actions.len(),
                        trace: self.lines(&actions),
                    }
                }
                None if cut => Verdict::Cut,
                None => Verdict::Exhausted,
            };
            // `R6 first come, first served`
            let name = property.name.split_once(' ');
            let (name, says) = name.unwrap_or((property.name, ""));
            Judged {
                name,
                says,
                verdict,
            }
        };
        let checked = Checked {
            model: self.setup.name.to_owned(),
            bounds: S::bounds(&self.setup),
            states: seen.unique_state_count(),
            // It counts the states of a path, one more than its steps.
            depth: seen.max_depth().saturating_sub(1),
            properties: S::properties().into_iter().map(judge).collect(),
            took,
        };
        let reached = self.reached.load(Ordering::Relaxed);
        let missed = self.setup.reaches.iter().enumerate();
        let missed = missed.filter(|&(at, _)| reached & (1 << at) == 0);
        Finding {
            checked,
            missed: missed.map(|(_, situation)| *situation).collect(),
        }
    }

    /// Finds the shortest counterexample. The checker keeps the last one that it saw. With one thread it searches breadth first,
    /// so a counterexample is the shortest if nothing deeper is allowed.
    fn shortest(&self, name: &'static str, mut actions: Vec<S::Action>) -> Vec<S::Action> {
        loop {
            let checker = self
                .clone()
                .checker()
                .threads(1)
                // The checker counts states, and does not check those at the limit.
                .target_max_depth(actions.len() + 1)
                .finish_when(HasDiscoveries::AnyOf([name].into()))
                .spawn_bfs()
                .join();
            match checker.discovery(name) {
                Some(path) => actions = path.into_actions(),
                None => return actions,
            }
        }
    }

    /// A path to a state for people: a heading, and a line for each step.
    fn lines(&self, actions: &[S::Action]) -> Vec<String> {
        let (tick, lasts) = S::TICK;
        let heading: Vec<_> = S::COLUMNS
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect();
        let mut lines = vec![line::<S>("#", &heading)];
        let (mut state, mut passed) = (S::init(self), Duration::ZERO);
        for (number, action) in (1_usize..).zip(actions) {
            let Some(turn) = self.step(&state, *action) else {
                break;
            };
            if *action == tick {
                passed += lasts;
            }
            let mut cells = vec![if lasts.subsec_millis() == 0 {
                format!("{} s", passed.as_secs())
            } else {
                format!("{} ms", passed.as_millis())
            }];
            cells.extend(S::cells(&state, *action, &turn));
            lines.push(line::<S>(&number.to_string(), &cells));
            state = turn.state;
        }
        lines
    }
}

fn line<S: Subject>(number: &str, cells: &[String]) -> String {
    debug_assert_eq!(cells.len(), S::COLUMNS.len());
    let mut line = format!("{number:>3} ");
    for (at, (cell, (_, width))) in cells.iter().zip(S::COLUMNS).enumerate() {
        // Writing to a String cannot fail.
        let _infallible = if at == 0 {
            write!(line, " {cell:>width$} ")
        } else {
            write!(line, " {cell:<width$}")
        };
    }
    line
}

impl<S: Subject> Model for Framed<S> {
    type State = S::State;
    type Action = S::Action;

    fn init_states(&self) -> Vec<S::State> {
        vec![S::init(self)]
    }

    fn actions(&self, state: &S::State, actions: &mut Vec<S::Action>) {
        if S::broken(state) == 0 {
            S::possible(self, state, actions);
        }
    }

    fn next_state(&self, last: &S::State, action: S::Action) -> Option<S::State> {
        let turn = self.step(last, action)?;
        let reached = turn.reached.get();
        // Mostly they are known already, and a write would delay the other threads.
        if reached & !self.reached.load(Ordering::Relaxed) != 0 {
            self.reached.fetch_or(reached, Ordering::Relaxed);
        }
        Some(turn.state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        S::properties()
    }
}
