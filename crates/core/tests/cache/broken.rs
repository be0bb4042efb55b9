//! Rules that are broken on purpose, as a programmer might by mistake. The register or the invariants must find each.

use leasehold_core::Now;
use leasehold_core::cache::{
    CommitOutcome, Control, EntryState, Outcome, Reply, Standing, Step, Value, Version,
};

/// The rules of an entry: [`EntryState::apply`], or a broken version of it.
pub(crate) type Apply = fn(&mut EntryState, Now, &Step) -> Outcome;

/// The name of a broken rule, and the rule.
pub(crate) type Broken = (&'static str, Apply);

/// Broken rules that make an old value look fresh: the register finds these.
pub(crate) const UNTRUE: &[Broken] = &[
    ("a commit looks at no epoch", no_epoch),
    ("a commit compares tokens, not versions", token_only),
    ("an invalidation is a DEL of the value", only_deletes),
    ("an invalidation leaves the value as it is", value_left),
    ("an invalidation leaves loads under way alone", loads_left),
    ("no memory is no invalidation", no_memory),
    ("a memory begins as if it knew of all", memory_of_all),
    ("numbers begin anew after a loss", counts_from_one),
    (
        "a number of a lost control counts as one of this",
        any_number,
    ),
    ("a repeated commit is stored once more", stored_again),
];

/// Broken rules that cost loads, values or waiters: the invariants find these.
pub(crate) const WASTEFUL: &[Broken] = &[
    ("K1: a second client loads", two_load),
    ("K1: an ended lease is renewed", renews_ended),
    ("K4: an old value replaces a newer one", older_wins),
    ("K4: a late value is dropped", late_dropped),
    ("K5: nobody is woken", no_wakes),
    ("K5: a failure wakes nobody", failure_silent),
    ("K5: a waiter is sent away for a minute", long_poll),
    (
        "K6: a repeated commit is overtaken by itself",
        repeat_overtaken,
    ),
    ("K6: a repeated load has another number", repeat_renumbered),
    ("K7: the memory has no end", no_end),
];

fn is_fresh(kept: CommitOutcome) -> bool {
    matches!(kept, CommitOutcome::Fresh(_))
}

/// Takes the step with a control that is changed for this step only.
fn with_epoch(state: &mut EntryState, now: Now, step: &Step, epoch: Version) -> Outcome {
    let kept = state.control.as_ref().map(|control| control.epoch);
    if let Some(control) = &mut state.control {
        control.epoch = epoch;
    }
    let outcome = state.apply(now, step);
    if let (Some(control), Some(kept)) = (&mut state.control, kept) {
        control.epoch = kept;
    }
    outcome
}

fn no_epoch(state: &mut EntryState, now: Now, step: &Step) -> Outcome {
    match step {
        Step::Commit(_) => with_epoch(state, now, step, Version::default()),
        _ => state.apply(now, step),
    }
}

fn token_only(state: &mut EntryState, now: Now, step: &Step) -> Outcome {
    let Step::Commit(commit) = step else {
        return state.apply(now, step);
    };
    state.expire(now);
    let loader = state.control.as_ref().and_then(|control| control.loader);
    match loader.filter(|loader| loader.token == commit.token) {
        Some(mine) => {
            let mut commit = commit.clone();
            commit.version = mine.version;
            state.apply(now, &Step::Commit(commit))
        }
        None => Outcome {
            reply: Reply::Committed(CommitOutcome::Overtaken),
            wakes: Vec::new(),
        },
    }
}

fn only_deletes(state: &mut EntryState, now: Now, step: &Step) -> Outcome {
    if !matches!(step, Step::Invalidate { .. }) {
        return state.apply(now, step);
    }
    state.value = None;
    Outcome {
        reply: Reply::Invalidated,
        wakes: Vec::new(),
    }
}

fn value_left(state: &mut EntryState, now: Now, step: &Step) -> Outcome {
    let value = state.value.clone();
    let outcome = state.apply(now, step);
    if matches!(step, Step::Invalidate { .. }) {
        state.value = value;
    }
    outcome
}

fn loads_left(state: &mut EntryState, now: Now, step: &Step) -> Outcome {
    let control = state.control.clone();
    let outcome = state.apply(now, step);
    if matches!(step, Step::Invalidate { .. }) {
        state.control = control;
    }
    outcome
}

fn no_memory(state: &mut EntryState, now: Now, step: &Step) -> Outcome {
    state.expire(now);
    let Step::Commit(commit) = step else {
        return state.apply(now, step);
    };
    if state.control.is_some() {
        return state.apply(now, step);
    }
    state.control = Some(Control {
        last: commit.version,
        epoch: Version::default(),
        loader: None,
        back_off: None,
        failures: 0,
        waiting: [].into(),
        forget_at_ms: now.millis(),
    });
    let outcome = state.apply(now, step);
    state.control = None;
    outcome
}

fn memory_of_all(state: &mut EntryState, now: Now, step: &Step) -> Outcome {
    state.expire(now);
    let is_new = state.control.is_none();
    let outcome = state.apply(now, step);
    if let Some(control) = state.control.as_mut().filter(|_| is_new) {
        control.epoch = Version::default();
    }
    outcome
}

fn counts_from_one(state: &mut EntryState, now: Now, step: &Step) -> Outcome {
    state.apply(Now { wall_us: 0, ..now }, step)
}

// An earlier version of the rule: a commit is compared with the epoch only.
fn any_number(state: &mut EntryState, now: Now, step: &Step) -> Outcome {
    state.expire(now);
    let last = state.control.as_ref().map(|control| control.last);
    if let (Step::Commit(commit), Some(control)) = (step, &mut state.control) {
        control.last = control.last.max(commit.version);
    }
    let outcome = state.apply(now, step);
    if let (Step::Commit(_), Some(control), Some(last)) = (step, &mut state.control, last) {
        control.last = last;
    }
    outcome
}

fn stored_again(state: &mut EntryState, now: Now, step: &Step) -> Outcome {
    let Step::Commit(commit) = step else {
        return state.apply(now, step);
    };
    let outcome = state.apply(now, step);
    if let (Reply::Committed(CommitOutcome::Stale), Some((value, _))) =
        (&outcome.reply, &mut state.value)
        && value.header.version == commit.version
        && value.header.stored_ms < now.millis()
    {
        value.header.invalidated = false;
        value.header.soft_ms = now.millis() + commit.fresh_ms;
    }
    outcome
}

fn two_load(state: &mut EntryState, now: Now, step: &Step) -> Outcome {
    let mut outcome = state.apply(now, step);
    if let (Reply::Busy { .. }, Some(control)) = (&outcome.reply, &mut state.control) {
        control.loader = None;
        control.waiting.clear();
        outcome = state.apply(now, step);
    }
    outcome
}

fn renews_ended(state: &mut EntryState, now: Now, step: &Step) -> Outcome {
    let loader = state.control.as_ref().and_then(|control| control.loader);
    if let (Step::Renew { token, lease }, Some(mut loader)) = (step, loader)
        && loader.token == *token
        && let Some(control) = &mut state.control
    {
        loader.until_ms = now.millis() + lease.millis();
        control.loader = Some(loader);
        control.forget_at_ms = control.forget_at_ms.max(loader.until_ms);
    }
    state.apply(now, step)
}

fn older_wins(state: &mut EntryState, now: Now, step: &Step) -> Outcome {
    if let (Step::Commit(commit), Some((value, _))) = (step, &state.value)
        && value.header.version > commit.version
    {
        state.value = None;
    }
    state.apply(now, step)
}

fn late_dropped(state: &mut EntryState, now: Now, step: &Step) -> Outcome {
    state.expire(now);
    let loader = state.control.as_ref().and_then(|control| control.loader);
    let stored = state.value.as_ref().map(|(value, _)| value.header.version);
    match step {
        Step::Commit(commit)
            if stored != Some(commit.version)
                && loader.is_none_or(|mine| mine.token != commit.token) =>
        {
            Outcome {
                reply: Reply::Committed(CommitOutcome::Overtaken),
                wakes: Vec::new(),
            }
        }
        _ => state.apply(now, step),
    }
}

fn no_wakes(state: &mut EntryState, now: Now, step: &Step) -> Outcome {
    let mut outcome = state.apply(now, step);
    outcome.wakes.clear();
    outcome
}

fn failure_silent(state: &mut EntryState, now: Now, step: &Step) -> Outcome {
    match step {
        Step::Abandon { .. } => no_wakes(state, now, step),
        _ => state.apply(now, step),
    }
}

fn long_poll(state: &mut EntryState, now: Now, step: &Step) -> Outcome {
    let mut outcome = state.apply(now, step);
    if let Reply::Busy { poll_after, .. } = &mut outcome.reply {
        *poll_after = std::time::Duration::from_secs(60);
    }
    outcome
}

fn repeat_overtaken(state: &mut EntryState, now: Now, step: &Step) -> Outcome {
    let version = |(value, _): &(Value, u64)| value.header.version;
    let stored = state.value.as_ref().map(version);
    let mut outcome = state.apply(now, step);
    if let (Step::Commit(commit), Reply::Committed(kept)) = (step, &mut outcome.reply)
        && stored == Some(commit.version)
        && is_fresh(*kept)
    {
        *kept = CommitOutcome::Overtaken;
    }
    outcome
}

fn repeat_renumbered(state: &mut EntryState, now: Now, step: &Step) -> Outcome {
    if let (Step::Begin(begin), Some(control)) = (step, &mut state.control) {
        let fresh = |(value, _): &(Value, u64)| value.standing(now) == Standing::Fresh;
        if !state.value.as_ref().is_some_and(fresh) {
            control.loader.take_if(|mine| mine.token == begin.token);
        }
    }
    state.apply(now, step)
}

fn no_end(state: &mut EntryState, now: Now, step: &Step) -> Outcome {
    let outcome = state.apply(now, step);
    if let Some(control) = &mut state.control {
        control.forget_at_ms = u64::MAX / 2;
    }
    outcome
}
