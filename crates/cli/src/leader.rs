//! `leasehold leader`: tells who leads, by looking. It takes nothing and does not join the queue.

use std::time::Duration;

use clap::Args;
use leasehold::{Client, Clock, Election, Error, HolderView, Moment};
use leasehold_core::LockName;
use leasehold_serve::documents::LeaderDocument;

use crate::acquire_ui::{counts_from, with_connect_note};
use crate::config::{at_least, duration};
use crate::exit::{BUSY, Exit, TIMEOUT, exit};
use crate::look::{PollTime, Polled, poll};
use crate::messages::{quoted, say, span};
use crate::output;
use crate::session::with_client;
use crate::store::StoreArgs;
use crate::view::{is_same_lease, who};
use crate::watch::LEAST;

/// The longest outage of the store during `--wait`, as for `leasehold wait`.
const OUTAGE_LIMIT: Duration = Duration::from_secs(30);

const WAIT_HELP: &str = "Wait until there is a leader, for at most this long (5s, 2h; a bare number is seconds), then exit with 124";

/// Show who leads an election
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Leader {
    #[command(flatten)]
    store: StoreArgs,

    /// The election, which is a lock
    #[arg(value_name = "NAME")]
    name: String,

    #[arg(id = "wait", short = 'w', long = "wait", value_name = "DUR", value_parser = duration, help = WAIT_HELP, long_help = with_connect_note(WAIT_HELP))]
    limit: Option<Duration>,

    /// Print the leader, and each change, until interrupted
    #[arg(long, conflicts_with = "wait")]
    watch: bool,

    /// Time between two looks (1s, 250ms; a bare number is seconds), at least 50ms
    #[arg(long, value_name = "DUR", default_value = "1s", value_parser = |text: &str| at_least(LEAST, text))]
    interval: Duration,

    /// Print one JSON document, with --watch one in each line (leasehold.leader/1)
    #[arg(long)]
    json: bool,
}

const ABOUT: &str = "\
Prints one line: user, host and process of the leader, its note, the number of its term, and since when
it leads, by the clock of this host. Changes between two looks are not seen.
  curl http://$(leasehold leader --json indexer | jq -r .holder.note)/status
  leasehold leader --watch indexer

Exit codes: 0 there is a leader; 75 there is none; 124 there was none until the limit of --wait; 69 the
store does not answer: whether there is one is not known; 64 wrong usage or an invalid name; 77 it
refuses user, password or permission; 78 no store, or a key beside the lock has another type; 128+n
ended by signal n";

/// Runs the verb.
pub(crate) fn leader(args: &Leader) -> Result<Exit, Exit> {
    LockName::new(&args.name)?;
    let target = args.store.target()?.patient(args.limit, false);
    let clock = Clock::system();
    let begun = clock.now();
    with_client(&target, async |client, signals| {
        let begun = counts_from(begun, clock.now());
        // Without a limit, one look is enough.
        let limit = args.limit.unwrap_or_default();
        let until = (!args.watch).then(|| begun.after(limit));
        let outage = if args.watch {
            Duration::MAX
        } else {
            OUTAGE_LIMIT
        };
        let looks = LeaderLooks {
            client,
            election: client.election(&args.name),
            args,
            begun,
            told: (false, None),
        };
        poll(looks, until, (outage, args.interval), signals).await
    })
}

/// Looks at the leader, until there is one, or at each change.
struct LeaderLooks<'a> {
    client: &'a Client,
    election: Election,
    args: &'a Leader,
    begun: Moment,
    /// Whether it has printed, and the leader then.
    told: (bool, Option<HolderView>),
}

impl Polled<Option<HolderView>> for LeaderLooks<'_> {
    async fn ask(&self) -> Result<Option<HolderView>, Error> {
        self.election.leader().await
    }

    fn hear(&mut self, leader: Option<HolderView>, at: PollTime) -> Result<Duration, Exit> {
        let args = self.args;
        if args.watch {
            let is_same = match (&self.told.1, &leader) {
                (Some(told), Some(leader)) => is_same_lease(told, leader),
                (told, leader) => told.is_none() && leader.is_none(),
            };
            if !self.told.0 || !is_same || at.after_outage {
                self.print(leader.as_ref(), None)?;
            }
            self.told = (true, leader);
            return Ok(args.interval);
        }
        if leader.is_none() && !at.is_over {
            return Ok(args.interval);
        }
        if args.json || leader.is_some() {
            match self.print(leader.as_ref(), None) {
                // The exit code is the answer, though nobody reads the document.
                Err(unread) if unread.code() == 0 => {}
                other => other?,
            }
        }
        Err(match leader {
            Some(_) => Exit::quiet(0),
            None => self.none(at.now),
        })
    }

    fn miss(&mut self, error: &Error) -> Result<(), Exit> {
        if self.args.watch {
            return self.print(None, Some(error));
        }
        say(&format!("{error}; still trying"));
        Ok(())
    }
}

impl LeaderLooks<'_> {
    fn none(&self, now: Moment) -> Exit {
        let name = quoted(&self.args.name);
        if self.args.limit.is_some() {
            let waited = span(now.since(self.begun));
            return exit!(
                TIMEOUT,
                "{name} has no leader after {waited} (exit {TIMEOUT})"
            );
        }
        let again = self.args.store.again_with(&self.args.name);
        exit!(
            BUSY,
            "{name} has no leader (exit {BUSY})\n    next    leasehold leader -w 1m {again}\n            leasehold elect {again} -- ..."
        )
    }

    /// Prints the leader as one line. With `--watch` the line begins with the time.
    fn print(&self, leader: Option<&HolderView>, error: Option<&Error>) -> Result<(), Exit> {
        let (store, name) = (self.client.store(), self.args.name.as_str());
        let document = LeaderDocument::of(store, name, leader, error);
        if self.args.json {
            return output::print_json(&document);
        }
        let LeaderDocument { time, since, .. } = document;
        let line = match (leader, error) {
            (Some(leader), _) => {
                let term = leader.fence.map(|term| format!(", term {term}"));
                let since = since.map(|since| format!(", since {since}"));
                let (term, since) = (term.unwrap_or_default(), since.unwrap_or_default());
                format!("{}{term}{since}", who(leader))
            }
            (None, None) => "no leader".to_owned(),
            (None, Some(error)) => format!("unanswered: {}", error.to_string().escape_debug()),
        };
        output::print(&if self.args.watch {
            format!("{time} {line}\n")
        } else {
            format!("{line}\n")
        })
    }
}
