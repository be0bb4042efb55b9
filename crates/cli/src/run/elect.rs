//! `leasehold elect`: the arguments of a run that campaigns again after each loss, and when it does.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use clap::Args;
use leasehold::Moment;

use super::args::{CommandArgs, ELECT_USAGE, Run, SECTION};
use super::once::OnceArgs;
use super::report::Report;
use super::stop::OnLost;
use super::timestamp::TimestampArgs;
use crate::acquire_ui::{KindArgs, WaitArgs};
use crate::config::hold;
use crate::exit::{self, Exit, LOST, UNAVAILABLE, USAGE as WRONG_USE, exit};
use crate::store::{StoreArgs, TtlArgs};

/// The TTL of a term by default: a crashed leader is followed after this time.
pub(super) const TTL: Duration = Duration::from_secs(10);

/// The pause after a loss, to which a random part of a tenth is added.
const PAUSE: Duration = Duration::from_secs(1);

/// The interval at which the reason of an outage is told again, as a sign of life.
const REPEAT: Duration = Duration::from_secs(30);

/// Run a command while this process is the elected leader
#[derive(Debug, Args)]
#[command(override_usage = ELECT_USAGE, after_help = format!("{ABOUT}\n\n{}", exit::HELP))]
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

impl Elect {
    /// The run that campaigns again.
    pub(super) fn into_run(self) -> Result<Run, Exit> {
        if self.command.on_lost == OnLost::Warn {
            return Err(exit!(
                WRONG_USE,
                "--on-lost warn cannot be used: there would be two leaders (exit {WRONG_USE})\n    next    {ELECT_USAGE}"
            ));
        }
        Ok(Run {
            store: self.store,
            how: self.how,
            ttl: self.ttl,
            skip: false,
            busy_code: None,
            kind: KindArgs::default(),
            max_hold: self.max_term,
            at_least: None,
            command: self.command,
            once: OnceArgs::default(),
            timestamp: TimestampArgs::default(),
            elects: true,
        })
    }
}

/// The pause before the next campaign after a term, or a campaign, with this exit. `None` if there is none. `is_limited`: the wait has
/// a limit.
pub(super) fn pause_after(exit: &Exit, report: &Report, is_limited: bool) -> Option<Duration> {
    let is_again = match exit.code() {
        // Ctrl-C reached the command alone, and means this process too, whatever the release shows then.
        LOST if exit.is_by_interrupt() => false,
        // The command itself may end with that number. One that does not die must not get a second one beside it.
        LOST => (!report.started || report.lost_cause.is_some()) && !report.still_runs,
        UNAVAILABLE => !report.started && !is_limited,
        _ => false,
    };
    // After a whole term, those who wait are ahead in the queue.
    let term = Duration::from_millis(report.held_ms.unwrap_or_default());
    let is_whole = report.lost_cause.is_some() && report.lost_lock.is_none() && term >= PAUSE;
    let pause = if is_whole {
        Duration::ZERO
    } else {
        jittered(PAUSE)
    };
    is_again.then_some(pause)
}

/// The reason for another campaign that was told last, and when.
#[derive(Debug, Default)]
pub(super) struct Told(Option<(String, Moment)>);

impl Told {
    /// True if `reason` is to be told: an outage gives the same one each few seconds.
    pub(super) fn is_news(&mut self, reason: &str, now: Moment) -> bool {
        let is_known = |(told, at): &(String, Moment)| told == reason && now.since(*at) < REPEAT;
        if self.0.as_ref().is_some_and(is_known) {
            return false;
        }
        self.0 = Some((reason.to_owned(), now));
        true
    }
}

/// The time and a random part of a tenth of it: who lost together does not campaign at the same moment.
fn jittered(time: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    time + time / 1_000 * u32::try_from(random % 100).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use leasehold::Clock;

    use super::*;

    #[test]
    fn a_long_outage_is_told_now_and_then() {
        let (mut told, begun) = (Told::default(), Clock::system().now());
        let mut is_news =
            |reason, seconds| told.is_news(reason, begun.after(Duration::from_secs(seconds)));
        for (reason, seconds, news) in [
            ("lost", 0, true),
            ("refused", 1, true),
            ("refused", 4, false),
            ("refused", 30, false),
            ("refused", 31, true),
            ("refused", 34, false),
            ("lost", 35, true),
            ("refused", 36, true),
        ] {
            assert_eq!(is_news(reason, seconds), news, "{reason} at {seconds} s");
        }
    }

    #[test]
    fn only_a_loss_and_an_outage_are_followed_by_a_campaign() {
        let ended = || {
            let mut report = Report::default();
            report.started = true;
            report
        };
        let lost = |lock: Option<&str>, held_ms| {
            let mut report = ended();
            report.held_ms = Some(held_ms);
            report.lost_cause = Some("why".into());
            report.lost_lock = lock.map(str::to_owned);
            report
        };
        let mut undead = lost(Some("x"), 5_000);
        undead.still_runs = true;
        for (code, report, is_limited, pause_ms) in [
            (LOST, lost(Some("x"), 5_000), true, Some(1_000)),
            (LOST, lost(None, 999), false, Some(1_000)),
            (LOST, lost(None, 1_000), false, Some(0)),
            (LOST, Report::default(), false, Some(1_000)),
            (UNAVAILABLE, Report::default(), false, Some(1_000)),
            (UNAVAILABLE, Report::default(), true, None),
            (LOST, undead, false, None),
            (LOST, ended(), false, None),
            (UNAVAILABLE, ended(), false, None),
            (0, ended(), false, None),
        ] {
            let pause = pause_after(&Exit::quiet(code), &report, is_limited);
            let most = |ms| Duration::from_millis(ms + ms / 10);
            let fits = match (pause, pause_ms) {
                (Some(pause), Some(ms)) => Duration::from_millis(ms) <= pause && pause <= most(ms),
                (pause, ms) => pause.is_none() && ms.is_none(),
            };
            assert!(fits, "{code} {report:?}: {pause:?}");
        }
    }
}
