//! A path to a state, in readable lines.

use leasehold_core::cache::{CommitOutcome, EntryState, Reply, Standing};

use super::actions::CacheAction;
use super::input::CacheModel;
use super::setup::TICK;
use super::state::{CacheMessage, CachePhase, CacheState, CallId, Load, Request};
use super::time::NOW;

/// A heading, and a line for each step: the action, the store's reply, and the state after it.
pub(super) fn lines(rules: &CacheModel, actions: &[CacheAction]) -> Vec<String> {
    let heading = format!(
        "{:>3}  {:>6}  {:<32} {:<16} {:<12} {:<10} {}",
        "#", "time", "what", "reply", "value", "lease", "loading"
    );
    let mut lines = vec![heading];
    let mut state = stateright::Model::init_states(rules).remove(0);
    let mut ms = 0;
    for (step, action) in actions.iter().enumerate() {
        let Some((next, said)) = rules.step(&state, *action) else {
            break;
        };
        if *action == CacheAction::Tick {
            ms += TICK.as_millis();
        }
        let time = format!("{ms} ms");
        lines.push(format!(
            "{:>3}  {time:>6}  {:<32} {:<16} {:<12} {:<10} {}",
            step + 1,
            what(&state, *action),
            said.as_ref().map(reply).unwrap_or_default(),
            value(&next.entry),
            lease(&next),
            loading(&next),
        ));
        state = next;
    }
    lines
}

fn what(state: &CacheState, action: CacheAction) -> String {
    let client = |index: u8| char::from(b'A' + index);
    match action {
        CacheAction::Ask {
            client: by,
            request,
            lost,
        } => {
            let lost = if lost { ", answer lost" } else { "" };
            format!("{} {}{lost}", client(by), verb(request))
        }
        CacheAction::Send {
            client: by,
            request,
        } => format!("{} sends {}", client(by), verb(request)),
        CacheAction::Arrive { at, again } => {
            let still = if again { ", not for the last time" } else { "" };
            format!("{} arrives{still}", message(&state.flight[at]))
        }
        CacheAction::Drop { at } => format!("{} is lost", message(&state.flight[at])),
        CacheAction::Crash { client: by } => format!("{} crashes", client(by)),
        CacheAction::Invalidate { remove: false } => "someone invalidates".to_owned(),
        CacheAction::Invalidate { remove: true } => "someone invalidates and removes".to_owned(),
        CacheAction::LoseControl => "the control is lost".to_owned(),
        CacheAction::LoseValue => "the value is lost".to_owned(),
        CacheAction::SetBack => "the clock is set back".to_owned(),
        CacheAction::Tick => format!("-- {} ms pass --", TICK.as_millis()),
    }
}

const fn verb(request: Request) -> &'static str {
    match request {
        Request::Begin(None) => "begins",
        Request::Begin(Some(_)) => "begins, over what is fresh",
        Request::Renew => "renews",
        Request::Commit(Load { old: false, .. }) => "commits",
        Request::Commit(Load { old: true, .. }) => "commits an old value",
        Request::Fail => "fails",
        Request::GiveUp => "gives up",
    }
}

fn message(message: &CacheMessage) -> String {
    format!("{}: {}", name(message.from), verb(message.request))
}

/// A letter for the client and a number for the call.
fn name(CallId { client, nth }: CallId) -> String {
    format!("{}{}", char::from(b'A' + client), nth + 1)
}

fn reply(reply: &Reply) -> String {
    match reply {
        Reply::Fresh(_) => "fresh",
        Reply::Load { .. } => "load",
        Reply::Busy { .. } => "busy",
        Reply::BackOff { .. } => "back-off",
        Reply::Renewed => "renewed",
        Reply::NotLoading => "not loading",
        Reply::Committed(CommitOutcome::Fresh(_)) => "kept fresh",
        Reply::Committed(CommitOutcome::Stale) => "kept stale",
        Reply::Committed(CommitOutcome::Overtaken) => "overtaken",
        Reply::Abandoned => "abandoned",
        Reply::Invalidated => "invalidated",
        Reply::Foreign(_) => "foreign",
    }
    .to_owned()
}

fn value(entry: &EntryState) -> String {
    let Some((value, _)) = &entry.value else {
        return "-".to_owned();
    };
    match value.standing(NOW) {
        Standing::Fresh => "fresh".to_owned(),
        Standing::Stale => "stale".to_owned(),
    }
}

fn lease(state: &CacheState) -> String {
    let control = state.entry.control.as_ref();
    let loader = control.and_then(|control| control.loader);
    loader.map_or("-".to_owned(), |loader| {
        let left = loader.until_ms.saturating_sub(NOW.millis());
        format!("{} {left} ms", name(CallId::of(loader.token)))
    })
}

fn loading(state: &CacheState) -> String {
    let loads = (0u8..).zip(&state.clients).filter_map(|(client, at)| {
        let CachePhase::Loading(load) = at.phase else {
            return None;
        };
        let id = CallId {
            client,
            nth: at.nth,
        };
        Some(name(id) + if load.old { ", invalidated" } else { "" })
    });
    loads.collect::<Vec<_>>().join("; ")
}
