//! A path to a state, in readable lines.

use leasehold_core::cache::{CommitOutcome, EntryState, Reply, Standing};

use super::model::{CacheTurn, TICK};
use super::state::{Load, Message, Phase, Request, State};
use super::turn::Action;
use crate::frame::{CallId, NOW, letter};

/// The action, the store's reply, and the state after it.
pub(super) fn cells(before: &State, action: Action, after: &CacheTurn<'_>) -> Vec<String> {
    vec![
        what(before, action),
        after.said.as_ref().map(reply).unwrap_or_default(),
        value(&after.state.entry),
        lease(&after.state),
        loading(&after.state),
    ]
}

fn what(state: &State, action: Action) -> String {
    match action {
        Action::Ask { client, verb, lost } => {
            let lost = if lost { ", answer lost" } else { "" };
            format!("{} {}{lost}", letter(client), does(verb))
        }
        Action::Send { client, verb } => {
            format!("{} sends {}", letter(client), does(verb))
        }
        Action::Arrive { at, again } => {
            let still = if again { ", not for the last time" } else { "" };
            format!("{} arrives{still}", message(&state.flight[at]))
        }
        Action::Drop { at } => format!("{} is lost", message(&state.flight[at])),
        Action::Crash { client } => format!("{} crashes", letter(client)),
        Action::Entry(event) => event.words().to_owned(),
        Action::Tick => format!("-- {} ms pass --", TICK.as_millis()),
    }
}

const fn does(request: Request) -> &'static str {
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

fn message(message: &Message) -> String {
    format!("{}: {}", message.from, does(message.request))
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

fn lease(state: &State) -> String {
    let control = state.entry.control.as_ref();
    let loader = control.and_then(|control| control.loader);
    loader.map_or("-".to_owned(), |loader| {
        let left = loader.until_ms.saturating_sub(NOW.millis());
        format!("{} {left} ms", CallId::of_token(loader.token))
    })
}

fn loading(state: &State) -> String {
    let loads = (0u8..).zip(&state.clients).filter_map(|(client, at)| {
        let Phase::Loading(load) = at.phase else {
            return None;
        };
        let old = if load.old { ", invalidated" } else { "" };
        Some(format!("{}{old}", state.id(client)))
    });
    loads.collect::<Vec<_>>().join("; ")
}
