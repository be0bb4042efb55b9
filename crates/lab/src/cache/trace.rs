//! A path to a state, in readable lines.

use leasehold_core::cache::{CommitOutcome, EntryState, Reply, Standing};

use super::actions::CacheAction;
use super::model::CacheTurn;
use super::setup::TICK;
use super::state::{CacheMessage, CachePhase, CacheState, Load, Request};
use crate::frame::{CallId, NOW, letter};

/// The action, the store's reply, and the state after it.
pub(super) fn cells(
    before: &CacheState,
    action: CacheAction,
    after: &CacheTurn<'_>,
) -> Vec<String> {
    vec![
        what(before, action),
        after.said.as_ref().map(reply).unwrap_or_default(),
        value(&after.state.entry),
        lease(&after.state),
        loading(&after.state),
    ]
}

fn what(state: &CacheState, action: CacheAction) -> String {
    match action {
        CacheAction::Ask {
            client,
            request,
            lost,
        } => {
            let lost = if lost { ", answer lost" } else { "" };
            format!("{} {}{lost}", letter(client), verb(request))
        }
        CacheAction::Send { client, request } => {
            format!("{} sends {}", letter(client), verb(request))
        }
        CacheAction::Arrive { at, again } => {
            let still = if again { ", not for the last time" } else { "" };
            format!("{} arrives{still}", message(&state.flight[at]))
        }
        CacheAction::Drop { at } => format!("{} is lost", message(&state.flight[at])),
        CacheAction::Crash { client } => format!("{} crashes", letter(client)),
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
    format!("{}: {}", message.from, verb(message.request))
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
        format!("{} {left} ms", CallId::of_token(loader.token))
    })
}

fn loading(state: &CacheState) -> String {
    let loads = (0u8..).zip(&state.clients).filter_map(|(client, at)| {
        let CachePhase::Loading(load) = at.phase else {
            return None;
        };
        let old = if load.old { ", invalidated" } else { "" };
        Some(format!("{}{old}", state.id(client)))
    });
    loads.collect::<Vec<_>>().join("; ")
}
