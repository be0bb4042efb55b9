//! `leasehold elect`: a run that campaigns again after each loss, with a new process of its command. The connection, the signals and
//! the place of the guardian stay the same, so no signal is missed between two terms.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use clap::Args;
use leasehold::{Client, Clock};

use super::args::{CommandArgs, Run, SECTION};
use super::guardian::Guardian;
use super::lock::TimestampArgs;
use super::once::OnceArgs;
use super::report::Report;
use super::stop::OnLost;
use super::{LockedRun, unless_ended};
use crate::acquire_ui::WaitArgs;
use crate::config::hold;
use crate::exit::{self, Exit, LOST, UNAVAILABLE, USAGE as WRONG_USE, exit};
use crate::inherited_store::UrlFile;
use crate::messages::say;
use crate::session::Target;
use crate::store::{StoreArgs, TtlArgs};
use crate::terminal::{Signals, Terminal};

/// The usage line, as that of `run`.
pub(super) const USAGE: &str = "leasehold elect [OPTIONS] NAME [--] CMD [ARG...]";

/// The TTL of a term by default: a crashed leader is followed after this time.
pub(super) const TTL: Duration = Duration::from_secs(10);

/// The pause after a loss, to which a random part of a tenth is added.
const PAUSE: Duration = Duration::from_secs(1);

/// Run a command while this process is the elected leader
#[derive(Debug, Args)]
#[command(override_usage = USAGE, after_help = format!("{ABOUT}\n\n{}", exit::HELP))]
pub(crate) struct Elect {
    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    how: WaitArgs,

    #[command(flatten)]
    ttl: TtlArgs,

    /// The longest term (at least 10ms). Then CMD is stopped, and those who wait lead before this process leads again
    #[arg(long, value_name = "DUR", value_parser = hold, help_heading = SECTION)]
    max_term: Option<Duration>,

    #[command(flatten)]
    command: CommandArgs,
}

const ABOUT: &str = "\
Of all that campaign for NAME, one leads and runs CMD; the others wait in line. NAME is a lock, and each
term is a lease of it. CMD has the environment of `leasehold run`, and in LEASEHOLD_TERM the number of
the term, which only rises. `leasehold leader NAME` tells the leader, with its note.

If CMD ends by itself, so does this process, with CMD's own status, and the next one leads at once. If
the term is lost, or --max-term is over, CMD and all processes of its group are stopped as by `leasehold
run`; this process campaigns again, and runs CMD anew in another term. A leader that crashes is followed
after the TTL. While the store does not answer, it goes on campaigning, unless --wait or --try is given,
which count for each campaign. After TERM, INT or QUIT, which CMD gets, it does not campaign again.

  leasehold elect --note 10.0.0.7:8080 indexer -- ./indexer --listen 10.0.0.7:8080
  leasehold elect --max-term 1h indexer -- ./indexer     leadership goes round";

/// Runs the verb.
pub(crate) fn elect(args: Elect) -> Result<Exit, Exit> {
    if args.command.on_lost == OnLost::Warn {
        return Err(exit!(
            WRONG_USE,
            "--on-lost warn cannot be used: there would be two leaders (exit {WRONG_USE})\n    next    {USAGE}"
        ));
    }
    super::run(&Run {
        store: args.store,
        how: args.how,
        ttl: args.ttl,
        skip: false,
        busy_code: None,
        also: Vec::new(),
        max_hold: args.max_term,
        at_least: None,
        command: args.command,
        once: OnceArgs::default(),
        timestamp: TimestampArgs::default(),
        elects: true,
    })
}

impl LockedRun<'_> {
    /// Leads, term after term, until the command ends by itself, or a signal asks for the end.
    pub(super) async fn lead(
        &mut self,
        client: &Client,
        target: &Target,
        signals: &mut Signals,
        guardian: &mut Guardian,
        report: &mut Report,
    ) -> Result<Exit, Exit> {
        let terminal = Terminal::controlling();
        // Each guardian removes the file of its own command.
        let mut url_file;
        loop {
            let exit = self.locked(client, signals, guardian, report).await;
            let (Ok(said) | Err(said)) = &exit;
            let is_over = match said.code() {
                // The command itself may end with that number.
                LOST => report.started && report.lost_cause.is_none() || report.still_runs,
                UNAVAILABLE => report.started || self.how.once || self.how.limit()?.is_some(),
                _ => true,
            };
            if is_over || signals.is_asked_to_end() {
                return exit;
            }
            say(&format!("{}; campaigning again", said.reason()));
            // After a whole term, those who wait are ahead in the queue.
            let term = Duration::from_millis(report.held_ms.unwrap_or_default());
            let is_whole = report.lost_cause.is_some() && report.lost_lock.is_none();
            report.restart();
            if !(is_whole && term >= PAUSE) {
                let pause = async {
                    tokio::time::sleep(jittered(PAUSE)).await;
                    Ok(())
                };
                unless_ended(pause, signals, terminal.as_ref()).await?;
            }
            self.how.begun = Clock::system().now();
            (self.store, url_file) = target.hand_on();
            guardian.restart(url_file.as_ref().map(UrlFile::path))?;
        }
    }
}

/// The time and a random part of a tenth of it: who lost together does not campaign at the same moment.
fn jittered(time: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    time + time / 1_000 * u32::try_from(random % 100).unwrap_or_default()
}
