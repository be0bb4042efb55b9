//! `--once`: a command that runs once among all hosts, for a date, a cron job or a period of time.

use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};

use clap::Args;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use leasehold::{Clock, Error, Lease, Mutex, Once, PastRun, Turn};

use crate::config::duration;
use crate::exit::{DONE, Exit, LOST, SPENT, USAGE, exit};
use crate::messages::{quoted, span, without_advice};

use super::report::Report;

/// The section of these options in `--help`.
const SECTION: &str = "Once among all hosts";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The pause before the store is asked again.
const PAUSE: Duration = Duration::from_millis(250);

/// How long a firing is kept that is named by the user.
const KEEP: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The options of a command that runs once.
#[derive(Debug, Default, Args)]
pub(crate) struct OnceArgs {
    /// Run CMD only if no host has run it with success for this FIRING: any text, such as a date or the time of a cron job. If one has, exit
    /// with 80
    #[arg(long = "once", value_name = "FIRING", conflicts_with = "per", help_heading = SECTION, hide_short_help = true)]
    firing: Option<String>,

    /// As --once, for each period by the clock of the store: whole days, or a part of a day such as 15m
    #[arg(long = "once-per", value_name = "DUR", value_parser = period, help_heading = SECTION, hide_short_help = true)]
    per: Option<Duration>,

    /// The time zone in which the days of --once-per begin, such as Europe/Berlin [default: UTC]
    #[arg(long = "once-zone", value_name = "ZONE", value_parser = zone, requires = "per", help_heading = SECTION, hide_short_help = true)]
    zone: Option<TimeZone>,

    /// Give up after N runs that failed: then exit with 81 [default: no limit]
    #[arg(long = "once-tries", value_name = "N", help_heading = SECTION, hide_short_help = true)]
    tries: Option<NonZeroU32>,

    /// How long the store remembers the firing (1s to 400d) [default: 2 periods, or 7d]
    #[arg(long = "once-keep", value_name = "DUR", value_parser = duration, help_heading = SECTION, hide_short_help = true)]
    keep: Option<Duration>,
}

impl OnceArgs {
    /// True if the command runs once.
    pub(super) fn is_chosen(&self) -> bool {
        self.firing.is_some() || self.per.is_some()
    }

    /// An error if the options contradict each other, or the timestamp protocol.
    pub(super) fn check(&self, has_timestamp: bool) -> Result<(), String> {
        let is_chosen = self.is_chosen();
        let refuse = |what: &str| Err(format!("{what} requires --once or --once-per"));
        match (self.tries, self.keep) {
            (Some(_), _) if !is_chosen => refuse("--once-tries"),
            (_, Some(_)) if !is_chosen => refuse("--once-keep"),
            (_, Some(keep)) if self.per.is_some_and(|per| keep < per) => Err(
                "--once-keep is shorter than --once-per: the work could run twice in a period"
                    .into(),
            ),
            _ if is_chosen && has_timestamp => Err(
                "--once cannot be used with --protocol timestamp: its locks have no owner".into(),
            ),
            _ => Ok(()),
        }
    }

    /// The firing of the work under this lock. A wait for the lock is also one for the time of the store, until `limit` has passed.
    pub(super) async fn of(
        &self,
        lock: &Mutex,
        limit: Option<Duration>,
    ) -> Result<Option<Occasion>, Exit> {
        let (name, keep) = match (&self.firing, self.per) {
            (Some(firing), _) => (firing.clone(), KEEP),
            (None, Some(per)) => {
                let now = store_time(lock, limit.unwrap_or_default()).await?;
                let zone = self.zone.clone().unwrap_or(TimeZone::UTC);
                (firing_at(now, per, zone)?, (per * 2).max(DAY))
            }
            (None, None) => return Ok(None),
        };
        let tries = self.tries.map_or(u32::MAX, NonZeroU32::get);
        let once = lock
            .once(&name)
            .tries(tries)
            .keep(self.keep.unwrap_or(keep));
        Ok(Some(Occasion { name, once }))
    }
}

/// A firing, and its name.
pub(super) struct Occasion {
    pub(super) name: String,
    once: Once,
}

impl Occasion {
    /// The exit if the work is done. Does not wait for the lock.
    pub(super) async fn is_open(&self) -> Result<(), Exit> {
        match self.once.past().await {
            Ok(Some(past)) if past.is_done => Err(self.done(&past)),
            Err(error) if !error.is_unavailable() => Err(error.into()),
            // Without an answer, the begin of the run tells.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Begins a run under this lease, and tells its number; or returns the exit if none may begin.
    pub(super) async fn begin(&self, lease: &Lease, report: &mut Report) -> Result<(), Exit> {
        match self.once.begin(lease).await {
            Ok(Turn::Mine(number)) => {
                report.firing_run = Some(number);
                Ok(())
            }
            Ok(Turn::Spent(last)) => Err(self.spent(&last)),
            Ok(Turn::Done(past)) => Err(self.done(&past)),
            Err(Error::Lost(lost)) => {
                let cause = without_advice(&lost.reason());
                report.lost_cause = Some(cause.clone());
                report.lost_lock = Some(lost.name);
                Err(exit!(
                    LOST,
                    "the lease on {} was lost: {cause}\n    the command was not started (exit {LOST})",
                    quoted(self.once.name())
                ))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Marks the work as done, or returns why it is not.
    pub(super) async fn finish(&self, lease: &Lease) -> Result<(), String> {
        let finished = self.once.finish(lease).await;
        finished.map_err(|error| without_advice(&error.to_string()))
    }

    /// The exit of a command that succeeded, but is not marked.
    pub(super) fn unmarked(&self, cause: &str) -> Exit {
        exit!(
            LOST,
            "{} has run for {}, but is not marked as done: {cause}\n    another run may repeat it (exit {LOST})",
            quoted(self.once.name()),
            quoted(&self.name)
        )
    }

    fn done(&self, past: &PastRun) -> Exit {
        exit!(
            DONE,
            "{} is done for {} (exit {DONE})\n    by      {}, {}, fence {}\n    next    nothing; to do it again, name another firing",
            quoted(self.once.name()),
            quoted(&self.name),
            past.by,
            ago(past),
            past.fence
        )
    }

    fn spent(&self, last: &PastRun) -> Exit {
        let (tries, runs) = match last.number {
            1 => ("1 try".to_owned(), "the run"),
            many => (format!("{many} tries"), "the last run"),
        };
        exit!(
            SPENT,
            "{} has failed for {} in {tries} (exit {SPENT})\n    by      {runs} by {}, begun {}, fence {}\n    next    find out why; a higher --once-tries tries again",
            quoted(self.once.name()),
            quoted(&self.name),
            last.by,
            ago(last),
            last.fence
        )
    }
}

/// The time of the store, for which it may have to be waited.
async fn store_time(lock: &Mutex, limit: Duration) -> Result<SystemTime, Error> {
    let clock = Clock::system();
    let until = clock.now().after(limit);
    loop {
        match lock.store_time().await {
            Err(error) if error.is_unavailable() && clock.now() < until => {
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// When a run was, by the clocks of the store and of this host.
fn ago(past: &PastRun) -> String {
    let at = humantime::format_rfc3339_seconds(past.at);
    match Clock::system().wall().duration_since(past.at) {
        Ok(ago) if ago < DAY => format!("{} ago ({at})", span(ago)),
        _ => format!("at {at}"),
    }
}

/// Reads a period: whole days, or a time that divides a day.
fn period(text: &str) -> Result<Duration, String> {
    let period = duration(text)?;
    let (ms, day) = (period.as_millis(), DAY.as_millis());
    let fits = ms > 0
        && if ms < day {
            day % ms == 0
        } else {
            ms % day == 0
        };
    if !fits || period < Duration::from_secs(1) || period > DAY * 200 {
        return Err("use whole days (1d, 7d, up to 200d), or a time from 1s on that divides a day (15m, 1h, 6h)".into());
    }
    Ok(period)
}

fn zone(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| {
        "is no time zone that this host knows; use a name such as Europe/Berlin, and see /usr/share/zoneinfo".into()
    })
}

/// The name of the period that contains this time: its first day, or when it begins, and how long it is. So the names of different periods and
/// zones differ.
///
/// Days begin at midnight of the zone, and weeks on Monday. The parts of a day count from its midnight on, so one that a clock change makes
/// longer has one more part.
fn firing_at(now: SystemTime, period: Duration, zone: TimeZone) -> Result<String, Exit> {
    let length = match period.as_millis() {
        ms if ms % 86_400_000 == 0 => format!("{}d", ms / 86_400_000),
        ms if ms % 3_600_000 == 0 => format!("{}h", ms / 3_600_000),
        ms if ms % 60_000 == 0 => format!("{}m", ms / 60_000),
        ms => format!("{ms}ms"),
    };
    let named = || -> Result<String, jiff::Error> {
        let of = match zone.iana_name() {
            Some(name) if zone != TimeZone::UTC => format!("{length}[{name}]"),
            _ => length,
        };
        let now = Timestamp::try_from(now)?.to_zoned(zone);
        if period >= DAY {
            let days = i64::try_from(period.as_secs() / DAY.as_secs()).unwrap_or(i64::MAX);
            let since = (now.date() - MONDAY).get_days();
            let first = i64::from(since).div_euclid(days) * days;
            let first = MONDAY.checked_add(SignedDuration::from_hours(first * 24))?;
            return Ok(format!("{first}/{of}"));
        }
        let midnight = now.start_of_day()?;
        let passed = now.timestamp().duration_since(midnight.timestamp());
        let part = SignedDuration::try_from(period)?;
        let parts = passed.as_nanos() / part.as_nanos();
        let begin: Zoned = midnight.checked_add(part * i32::try_from(parts).unwrap_or(i32::MAX))?;
        let begin = begin.strftime("%Y-%m-%dT%H:%M:%S%:z");
        Ok(format!("{begin}/{of}"))
    };
    named().map_err(|error| {
        exit!(
            USAGE,
            "the period cannot be named: {error} (exit {USAGE})\n    next    name it by --once FIRING"
        )
    })
}

/// The first Monday before 1970.
const MONDAY: Date = Date::constant(1969, 12, 29);

#[cfg(test)]
mod tests {
    use super::*;

    fn name(now: &str, per: &str, in_zone: &str) -> String {
        let now: Timestamp = now.parse().unwrap();
        firing_at(now.into(), period(per).unwrap(), zone(in_zone).unwrap()).unwrap()
    }

    #[test]
    fn a_period_is_named_by_its_begin() {
        for (now, per, zone, expected) in [
            ("2026-11-27T23:59:59Z", "1d", "UTC", "2026-11-27"),
            ("2026-11-28T00:00:00Z", "1d", "UTC", "2026-11-28"),
            ("2026-11-27T23:30:00Z", "1d", "Europe/Berlin", "2026-11-28"),
            (
                "2026-11-27T04:30:00Z",
                "1d",
                "America/New_York",
                "2026-11-26",
            ),
            // A Friday; the week begins on Monday.
            ("2026-11-27T12:00:00Z", "7d", "UTC", "2026-11-23"),
            ("1969-12-28T12:00:00Z", "7d", "UTC", "1969-12-22"),
            (
                "2026-11-27T12:44:59Z",
                "15m",
                "UTC",
                "2026-11-27T12:30:00+00:00",
            ),
            (
                "2026-11-27T12:44:59Z",
                "6h",
                "Asia/Kolkata",
                "2026-11-27T18:00:00+05:30",
            ),
            // The day has 25 hours, and the hour from 2 to 3 comes twice.
            (
                "2026-10-25T00:30:00Z",
                "1h",
                "Europe/Berlin",
                "2026-10-25T02:00:00+02:00",
            ),
            (
                "2026-10-25T01:30:00Z",
                "1h",
                "Europe/Berlin",
                "2026-10-25T02:00:00+01:00",
            ),
            (
                "2026-10-25T22:30:00Z",
                "6h",
                "Europe/Berlin",
                "2026-10-25T23:00:00+01:00",
            ),
            // The day has 23 hours.
            ("2026-03-29T21:59:59Z", "1d", "Europe/Berlin", "2026-03-29"),
            ("2026-03-29T22:00:00Z", "1d", "Europe/Berlin", "2026-03-30"),
        ] {
            let name = name(now, per, zone);
            let (begin, _) = name.split_once('/').unwrap();
            assert_eq!(begin, expected, "{now} {per} {zone}");
        }
    }

    #[test]
    fn other_periods_and_zones_have_other_names() {
        let now = "2026-11-23T00:00:00Z";
        for (per, zone, expected) in [
            ("1d", "UTC", "2026-11-23/1d"),
            ("7d", "UTC", "2026-11-23/7d"),
            ("24h", "Europe/Berlin", "2026-11-23/1d[Europe/Berlin]"),
            ("90m", "UTC", "2026-11-23T00:00:00+00:00/90m"),
            ("12h", "UTC", "2026-11-23T00:00:00+00:00/12h"),
            ("1.5s", "UTC", "2026-11-23T00:00:00+00:00/1500ms"),
        ] {
            assert_eq!(name(now, per, zone), expected);
        }
    }

    #[test]
    fn a_period_that_does_not_fit_days_is_refused() {
        for bad in ["0", "7h", "25h", "36h", "500ms", "201d", "x"] {
            period(bad).unwrap_err();
        }
        zone("Mars/Olympus").unwrap_err();
    }
}
