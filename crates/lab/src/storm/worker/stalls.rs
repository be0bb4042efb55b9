//! When a worker did not run although it wanted to: what it writes late then is not the lock's fault. Must never be judged by:
//! it is for people who look for a cause.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use tokio::time::sleep;

use crate::host_time;

const TICK: Duration = Duration::from_millis(10);

/// From so much on, it is written down.
const LATE: Duration = Duration::from_millis(50);

/// Writes into `worker-PROC.stalls`: a thread that only sleeps, beside the one that works.
pub(super) fn watch(directory: &Path, proc: u64) -> Result<(), String> {
    let path = path(directory, proc);
    let refused = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = File::options()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(refused)?;
    let thread = thread::Builder::new().name("stalls".into());
    let sleeps = move || loop {
        let from = host_time::up();
        thread::sleep(TICK);
        note(&file, "thread", from);
    };
    thread.spawn(sleeps).map(drop).map_err(refused)
}

/// The same from within the runtime that the worker's tasks run on; for ever.
pub(super) async fn tick(directory: &Path, proc: u64) {
    let Ok(file) = File::options().append(true).open(path(directory, proc)) else {
        return;
    };
    loop {
        let from = host_time::up();
        sleep(TICK).await;
        note(&file, "runtime", from);
    }
}

fn note(mut file: &File, what: &str, from: Duration) {
    let late = host_time::up().saturating_sub(from + TICK);
    if late > LATE {
        let line = format!("{what} {} {}\n", from.as_nanos(), late.as_nanos());
        // It is of no use to anybody if this fails.
        let _noted: std::io::Result<()> = file.write_all(line.as_bytes());
    }
}

/// For how long a thread that only sleeps was kept from running at most, where its process was not stopped: by the machine,
/// then. `stops` are process, beginning and end.
pub(in crate::storm) fn longest(directory: &Path, stops: &[(u64, u64, u64)]) -> Duration {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let stalls = files.flat_map(|file| of_file(&file.path()).unwrap_or_default());
    let stopped = |proc, from, to| {
        stops
            .iter()
            .any(|&(whose, stop, cont)| whose == proc && stop <= to && from <= cont)
    };
    let unstopped = stalls.filter(|&(proc, from, late)| !stopped(proc, from, from + late));
    Duration::from_nanos(unstopped.map(|(_, _, late)| late).max().unwrap_or(0))
}

/// Process, from when it slept, and how late it woke, in nanoseconds; `None` for a file of another kind.
fn of_file(path: &Path) -> Option<Vec<(u64, u64, u64)>> {
    let proc = path
        .file_name()?
        .to_str()?
        .strip_prefix("worker-")?
        .strip_suffix(".stalls")?;
    let proc = proc.parse().ok()?;
    let text = fs::read_to_string(path).ok()?;
    let slept = text.lines().filter_map(slept);
    Some(slept.map(|(from, late)| (proc, from, late)).collect())
}

/// From when it slept, and how late it woke, in nanoseconds.
fn slept(line: &str) -> Option<(u64, u64)> {
    let (from, late) = line.strip_prefix("thread ")?.split_once(' ')?;
    Some((from.parse().ok()?, late.parse().ok()?))
}

fn path(directory: &Path, proc: u64) -> PathBuf {
    directory.join(format!("worker-{proc}.stalls"))
}

#[cfg(test)]
mod tests {
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
}
