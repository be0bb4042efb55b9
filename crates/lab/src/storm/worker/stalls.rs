//! Measures when a worker could not run, which explains late records. For people who look for a cause; the judge does not use
//! it.
//!
//! Three threads are watched: one that only sleeps, the one that runs the worker's tasks, and the library's thread, which
//! reports losses. For that one, the kernel reports how long it waited for a processor.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use crate::host_time;

const TICK: Duration = Duration::from_millis(10);

/// The least delay that is recorded.
const LATE: Duration = Duration::from_millis(10);

/// The prefixes of the names of the library's threads.
const LIBRARY: &str = "lh-";

/// Writes into `worker-PROC.stalls`, from a thread that only sleeps.
pub(super) fn watch(directory: &Path, proc: u64) -> Result<(), String> {
    let path = path(directory, proc);
    let refused = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = File::options()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(refused)?;
    let thread = thread::Builder::new().name("stalls".into());
    let sleeps = move || {
        let mut waited = HashMap::new();
        loop {
            let from = host_time::up();
            thread::sleep(TICK);
            note(&file, "thread", from, late(from));
            look(&file, &mut waited);
        }
    };
    thread.spawn(sleeps).map(drop).map_err(refused)
}

/// Writes such delays from within the runtime that the worker's tasks run on. Does not return.
pub(super) async fn tick(directory: &Path, proc: u64) {
    let Ok(file) = File::options().append(true).open(path(directory, proc)) else {
        return;
    };
    loop {
        let from = host_time::up();
        sleep(TICK).await;
        note(&file, "runtime", from, late(from));
    }
}

/// How much longer than a tick after `from` it took.
fn late(from: Duration) -> Duration {
    host_time::up().saturating_sub(from + TICK)
}

fn note(mut file: &File, what: &str, from: Duration, late: Duration) {
    if late > LATE {
        let line = format!("{what} {} {}\n", from.as_nanos(), late.as_nanos());
        // A failure to write it is ignored.
        let _noted: std::io::Result<()> = file.write_all(line.as_bytes());
    }
}

/// Records how long the library's threads have waited for a processor since the last call.
fn look(file: &File, waited: &mut HashMap<PathBuf, Duration>) {
    for task in fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
    {
        let task = task.path();
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        let Some(all) = name
            .starts_with(LIBRARY)
            .then(|| fs::read_to_string(task.join("schedstat")).ok())
            .flatten()
            .and_then(|stat| run_delay(&stat))
        else {
            continue;
        };
        let before = waited.insert(task, all).unwrap_or_default();
        let late = all.saturating_sub(before);
        note(file, "library", host_time::up().saturating_sub(late), late);
    }
}

/// How long a thread has waited for a processor, by its `schedstat`.
fn run_delay(stat: &str) -> Option<Duration> {
    let nanoseconds = stat.split_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

/// A thread of a worker that did not run, in nanoseconds.
struct Stall {
    proc: u64,
    what: String,
    from: u64,
    late: u64,
}

/// The longest time for which a sleeping thread was kept from running while its process was not stopped, that is, by the
/// machine. `stops` are process, beginning and end.
pub(crate) fn longest(directory: &Path, stops: &[(u64, u64, u64)]) -> Duration {
    let stopped = |stall: &Stall| {
        let to = stall.from + stall.late;
        stops
            .iter()
            .any(|&(whose, stop, cont)| whose == stall.proc && stop <= to && stall.from <= cont)
    };
    let unstopped = stalls(directory)
        .into_iter()
        .filter(|stall| stall.what == "thread" && !stopped(stall));
    Duration::from_nanos(unstopped.map(|stall| stall.late).max().unwrap_or(0))
}

/// The longest delay of a loss report, without the time in which the library's thread or the worker's runtime could not run
/// or its process was stopped. The rest has no known cause.
pub(crate) fn unexplained(directory: &Path, stops: &[(u64, u64, u64)]) -> Duration {
    let stalls = stalls(directory);
    let left = tellings(directory).into_iter().map(|(proc, due, told)| {
        let stalled = stalls
            .iter()
            .filter(|stall| stall.proc == proc && stall.what != "thread")
            .map(|stall| (stall.from, stall.from + stall.late + nanoseconds(TICK)));
        let stopped = stops.iter().filter(|&&(whose, ..)| whose == proc);
        let mut kept: Vec<_> = stalled
            .chain(stopped.map(|&(_, stop, cont)| (stop, cont)))
            .collect();
        kept.sort_unstable();
        let (mut left, mut reached) = (0, due);
        for (from, to) in kept {
            left += from.min(told).saturating_sub(reached);
            reached = reached.max(to.min(told));
        }
        left + told.saturating_sub(reached)
    });
    Duration::from_nanos(left.max().unwrap_or(0))
}

/// A lost lease: its process, its deadline, and the time of its report.
fn tellings(directory: &Path) -> Vec<(u64, u64, u64)> {
    let told = lines(directory, ".jsonl")
        .into_iter()
        .filter_map(|(proc, line)| {
            let line: Value = serde_json::from_str(&line).ok()?;
            let at = |key| line.get(key).and_then(Value::as_u64);
            (line.get("ev")? == "told-lost").then_some((proc, at("valid_until_ns")?, at("at_ns")?))
        });
    told.collect()
}

fn stalls(directory: &Path) -> Vec<Stall> {
    let stalls = lines(directory, ".stalls")
        .into_iter()
        .filter_map(|(proc, line)| {
            let (what, times) = line.split_once(' ')?;
            let (from, late) = times.split_once(' ')?;
            Some(Stall {
                proc,
                what: what.to_owned(),
                from: from.parse().ok()?,
                late: late.parse().ok()?,
            })
        });
    stalls.collect()
}

/// The lines of the files of all workers with this suffix, each with its process.
fn lines(directory: &Path, end: &str) -> Vec<(u64, String)> {
    let mut all = Vec::new();
    for file in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        let proc: Option<u64> = name
            .strip_prefix("worker-")
            .and_then(|name| name.strip_suffix(end)?.parse().ok());
        if let Some(proc) = proc {
            let text = fs::read_to_string(file.path()).unwrap_or_default();
            all.extend(text.lines().map(|line| (proc, line.to_owned())));
        }
    }
    all
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn path(directory: &Path, proc: u64) -> PathBuf {
    directory.join(format!("worker-{proc}.stalls"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_stop_is_no_stall() {
        let directory = tempfile::tempdir().unwrap();
        let two = "thread 1000 500\nruntime 1000 9000\nthread 5000 700\nthread 9";
        fs::write(path(directory.path(), 1), two).unwrap();
        assert_eq!(longest(directory.path(), &[]), Duration::from_nanos(700));
        assert_eq!(
            longest(directory.path(), &[(2, 4000, 6000)]),
            Duration::from_nanos(700)
        );
        assert_eq!(
            longest(directory.path(), &[(1, 5600, 6000)]),
            Duration::from_nanos(500)
        );
    }

    #[test]
    fn late_loss_report_is_explained_by_stalled_threads() {
        let directory = tempfile::tempdir().unwrap();
        let ms = 1_000_000;
        let told = json!({"ev": "told-lost", "valid_until_ns": 100 * ms, "at_ns": 400 * ms});
        fs::write(directory.path().join("worker-1.jsonl"), told.to_string()).unwrap();
        let left = |stalls: &str, stops: &[(u64, u64, u64)]| {
            fs::write(path(directory.path(), 1), stalls.replace("ms", "000000")).unwrap();
            unexplained(directory.path(), stops).as_millis()
        };
        assert_eq!(left("", &[]), 300);
        assert_eq!(left("thread 100ms 300ms", &[]), 300, "it told nobody");
        assert_eq!(left("library 50ms 100ms", &[]), 240, "and a tick");
        assert_eq!(left("library 50ms 140ms\nruntime 150ms 240ms", &[]), 0);
        assert_eq!(left("library 300ms 20ms\nruntime 310ms 500ms", &[]), 200);
        assert_eq!(left("", &[(1, 0, 150 * ms), (2, 0, 400 * ms)]), 250);
    }

    #[test]
    fn library_threads_are_known_by_name_and_waits_by_kernel() {
        assert_eq!(
            run_delay("73000 86039 1\n"),
            Some(Duration::from_nanos(86_039))
        );
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let name = format!("{LIBRARY}test");
        let waits = thread::Builder::new().name(name).spawn(move || told.recv());
        let file = tempfile::tempfile().unwrap();
        let mut waited = HashMap::new();
        // The name is set a moment after the start.
        while waited.is_empty() {
            look(&file, &mut waited);
        }
        drop(tell);
        waits.unwrap().join().unwrap().unwrap_err();
    }
}
