//! `leasehold hold --many`: one process holds any number of locks for a program. Each request has a number, which its
//! events repeat. A lock ends alone; the end of the program ends all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold::{Client, Clock, Ttl};
use leasehold_core::{LockName, Mode};
use serde::Deserialize;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{
    Asked, Events, Hold, HoldCommand, HoldEvent, Input, Inputs, Parent, ParentEvent, Process,
    hold_one,
};
use crate::acquire_ui::{KindArgs, WaitArgs};
use crate::exit::{Exit, USAGE, exit};

/// A lock that the parent asks for. The options of the verb hold where a field is missing.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Request {
    /// The number of the lock, which no other lock has until it ended.
    id: u64,
    lock: String,
    /// Locks that are taken too, all or none.
    #[serde(default)]
    also: Vec<String>,
    /// As in the event `acquired`; alone by default.
    mode: Option<String>,
    ttl_ms: Option<u64>,
    /// The limit of the wait; with 0 a busy lock is not waited for.
    wait_ms: Option<u64>,
    note: Option<String>,
}

/// Serves the parent until it is gone or a signal ends this process, then lets all locks go.
pub(super) async fn serve(
    client: &Client,
    args: &Hold,
    ttl: Duration,
    mut process: Process,
    early: Vec<HoldCommand>,
) -> Result<Exit, Exit> {
    process.program.look_again();
    let events = process.events.clone();
    events.tell(&HoldEvent::Ready {
        store: args.store.target()?.shown(),
    });
    let store = args.store.again();
    let mut holds = FuturesUnordered::new();
    let mut open: BTreeMap<u64, UnboundedSender<ParentEvent>> = BTreeMap::new();
    let mut early = early.into_iter();
    let exit = loop {
        let heard = if let Some(command) = early.next() {
            Input::Said(command)
        } else {
            tokio::select! {
                biased;
                heard = process.hear() => heard,
                Some(id) = holds.next() => {
                    open.remove(&id);
                    continue;
                }
            }
        };
        match heard {
            Input::Said(HoldCommand::Acquire(request)) if open.contains_key(&request.id) => {
                let taken = format!(
                    "the number {} belongs to another lock until that ends",
                    request.id
                );
                process.refuse(taken);
            }
            Input::Said(HoldCommand::Acquire(request)) => {
                let (pass, passed) = unbounded_channel();
                open.insert(request.id, pass);
                let events = events.of(request.id);
                holds.push(one(client, args, ttl, &store, request, passed, events));
            }
            Input::Said(HoldCommand::Release { id: Some(id) }) => {
                // Without one, the release has crossed the last event of its lock. So has one whose lock is ending.
                let _told = open.get(&id).map(|lock| lock.send(ParentEvent::Release));
            }
            Input::Said(HoldCommand::Check { id: Some(id) }) => {
                let told = open.get(&id).map(|lock| lock.send(ParentEvent::Check));
                if !matches!(told, Some(Ok(()))) {
                    events.of(id).tell(&super::state(None));
                }
            }
            Input::Said(HoldCommand::Release { id: None } | HoldCommand::Check { id: None }) => {
                process.refuse("not understood: with --many, each line needs an \"id\"".into());
            }
            Input::Gone => break Exit::quiet(0),
            Input::Signal(signal) => break Exit::by(signal),
            Input::Nothing => {}
        }
    };
    drop(open);
    while holds.next().await.is_some() {}
    events.tell(&HoldEvent::Ended { code: exit.code() });
    Ok(exit)
}

/// Holds one of many locks until its end, and returns its number.
async fn one(
    client: &Client,
    args: &Hold,
    ttl: Duration,
    store: &str,
    request: Request,
    passed: UnboundedReceiver<ParentEvent>,
    events: Events,
) -> u64 {
    let id = request.id;
    let inputs = Inputs::Passed(passed);
    let mut parent = Parent { inputs, events };
    let held = async {
        let (kind, how) = (request.kind()?, request.how(&args.how));
        let asked = Asked {
            lock: &request.lock,
            kind: &kind,
            how: &how,
            ttl: request.ttl_ms.map_or(Ok(ttl), lease)?,
            store,
        };
        hold_one(client, &asked, &mut parent).await
    };
    if let Err(exit) = Box::pin(held).await {
        // Ignored if the last event was already sent.
        parent.events.tell(&HoldEvent::of_exit(&exit));
    }
    id
}

/// The TTL of a lease that lasts so many milliseconds.
fn lease(millis: u64) -> Result<Duration, Exit> {
    Ok(Ttl::new(Duration::from_millis(millis))?.get())
}

impl Request {
    fn kind(&self) -> Result<KindArgs, Exit> {
        for name in [&self.lock].into_iter().chain(&self.also) {
            LockName::new(name)?;
        }
        let mode = self
            .mode
            .as_deref()
            .map_or(Ok(Mode::Exclusive), str::parse)?;
        if mode != Mode::Exclusive && !self.also.is_empty() {
            return Err(exit!(
                USAGE,
                "locks that are taken together are exclusive (exit {USAGE})"
            ));
        }
        Ok(KindArgs {
            also: self.also.clone(),
            shared: mode == Mode::Shared,
            slots: match mode {
                Mode::Slot(slots) => Some(slots.get()),
                _ => None,
            },
        })
    }

    fn how(&self, by_default: &WaitArgs) -> WaitArgs {
        let mut how = by_default.clone();
        how.begun = Clock::system().now();
        if let Some(wait) = self.wait_ms {
            how.once = wait == 0;
            how.wait = (wait > 0).then(|| Duration::from_millis(wait));
        }
        how.note = self.note.clone().or(how.note);
        how
    }
}
