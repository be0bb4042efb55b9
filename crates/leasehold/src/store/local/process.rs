//! The clients of the file, and which of their processes have certainly ended. If in doubt, a process counts as present.

use std::fs;

use leasehold_core::ClientId;
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use rusqlite::{Connection, Row};

use super::lock::OF_CLIENT;

/// Identifies a process, and distinguishes it from a later one with its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pid: u32,
    /// Its start time, in ticks since boot, if known.
    started: Option<u64>,
    /// Its PID namespace; `None` if unknown.
    namespace: Option<String>,
}

impl Process {
    /// The current process. A fork cannot be told apart from it, so forking while a store is open is not supported.
    pub(super) fn current() -> Self {
        let pid = std::process::id();
        Self {
            pid,
            started: stat(pid).map(|stat| stat.started),
            namespace: namespace(),
        }
    }

    /// True if this process has certainly ended, as far as `observer` can see.
    pub(super) fn is_gone(&self, observer: &Self) -> bool {
        if self.namespace.is_none() || self.namespace != observer.namespace {
            return false;
        }
        match stat(self.pid) {
            Some(stat) => stat.dead || self.started.is_some_and(|started| started != stat.started),
            None => no_such_pid(self.pid),
        }
    }
}

/// Asks the kernel, since `/proc` may hide the processes of other users.
fn no_such_pid(pid: u32) -> bool {
    // Zero and negative numbers mean process groups.
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0);
    pid.is_some_and(|pid| kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH))
}

/// The fields used of `/proc/<pid>/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    started: u64,
    /// It has ended and waits to be reaped by its parent.
    dead: bool,
}

/// Whether `/proc` is known. Other systems may have one with other meanings.
const IS_LINUX: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// The fields of one process, if it exists and `/proc` is known.
fn stat(pid: u32) -> Option<Stat> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    parse_stat(&line.filter(|_| IS_LINUX)?)
}

/// Reads a line of `/proc/<pid>/stat`. Its second field, the command, may contain spaces and parentheses.
fn parse_stat(line: &str) -> Option<Stat> {
    let (_, rest) = line.rsplit_once(')')?;
    // The fields after the command. proc(5) counts from one.
    let field = |number: usize| rest.split_ascii_whitespace().nth(number - 3);
    let threads: u32 = field(20)?.parse().ok()?;
    // A process whose main thread ended before the others also shows as a zombie, but is alive.
    let dead = matches!(field(3)?, "Z" | "X") && threads <= 1;
    Some(Stat {
        started: field(22)?.parse().ok()?,
        dead,
    })
}

/// The PID namespace, if `/proc` belongs to it: `/proc` may be mounted from another namespace.
fn namespace() -> Option<String> {
    if !IS_LINUX {
        // There is only one.
        return Some("host".into());
    }
    let own = fs::read_to_string("/proc/self/stat").ok()?;
    let counts_alike = own.split(' ').next()? == std::process::id().to_string();
    let link = fs::read_link("/proc/self/ns/pid")
        .ok()
        .filter(|_| counts_alike)?;
    Some(link.to_string_lossy().into_owned())
}

/// True if this process's deadlines mean the same to the other processes of the host. On Linux, a time namespace may
/// shift its boot clock.
pub(super) fn has_hosts_clock() -> bool {
    let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let mut lines = offsets.lines();
    let boot = lines.find_map(|line| line.strip_prefix("boottime"));
    boot.is_none_or(|boot| boot.split_ascii_whitespace().all(|offset| offset == "0"))
}

/// The process of a client.
pub(super) fn find(db: &Connection, client: ClientId) -> rusqlite::Result<Process> {
    let sql = "SELECT pid, started, namespace FROM clients WHERE client = ?1";
    db.prepare_cached(sql)?
        .query_row([client.get().cast_signed()], read)
}

/// The clients, as signed numbers, whose process has certainly ended as far as `observer` can see.
pub(super) fn gone(db: &Connection, observer: &Process) -> rusqlite::Result<Vec<i64>> {
    let mut select = db.prepare_cached("SELECT pid, started, namespace, client FROM clients")?;
    let clients = select.query_map([], |row| Ok((read(row)?, row.get(3)?)))?;
    let clients: Vec<(Process, i64)> = clients.collect::<rusqlite::Result<_>>()?;
    let gone = |(process, client): (Process, i64)| process.is_gone(observer).then_some(client);
    Ok(clients.into_iter().filter_map(gone).collect())
}

fn read(row: &Row<'_>) -> rusqlite::Result<Process> {
    let started: Option<i64> = row.get(1)?;
    Ok(Process {
        pid: row.get(0)?,
        started: started.map(i64::cast_unsigned),
        namespace: row.get(2)?,
    })
}

/// Records that `client` belongs to `process`.
pub(super) fn register(
    db: &Connection,
    client: ClientId,
    process: &Process,
) -> rusqlite::Result<()> {
    let started = process.started.map(u64::cast_signed);
    let sql =
        "INSERT OR REPLACE INTO clients (client, pid, started, namespace) VALUES (?1, ?2, ?3, ?4)";
    let client = client.get().cast_signed();
    db.execute(sql, (client, process.pid, started, &process.namespace))
        .map(drop)
}

/// Forgets a client without holds and waiters. While it has a hold, only this row can show that its process is gone.
pub(super) fn unregister(db: &Connection, client: i64) -> rusqlite::Result<()> {
    let unused = format!("DELETE FROM clients WHERE client = ?1 AND NOT EXISTS ({OF_CLIENT})");
    db.execute(&unused, [client]).map(drop)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_command_may_look_like_the_fields_after_it() {
        let tail = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16";
        let line = |command: &str, state: &str, threads: &str| {
            format!("12 ({command}) {state} {tail} {threads} 0 4711 99")
        };
        assert_eq!(
            parse_stat(&line("a", "S", "1")),
            Some(Stat {
                started: 4711,
                dead: false
            })
        );
        assert_eq!(
            parse_stat(&line("a) Z 1 (b", "R", "1")),
            Some(Stat {
                started: 4711,
                dead: false
            })
        );
        assert_eq!(
            parse_stat(&line("a", "Z", "1")),
            Some(Stat {
                started: 4711,
                dead: true
            })
        );
        assert_eq!(
            parse_stat(&line("a", "Z", "3")),
            Some(Stat {
                started: 4711,
                dead: false
            })
        );
        for broken in ["", "12 (a", "12 (a)", "12 (a) S 1 2"] {
            assert_eq!(parse_stat(broken), None);
        }
    }

    #[test]
    fn child_is_present_until_exit_even_if_not_reaped() {
        let here = Process::current();
        assert!(!here.is_gone(&here));
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let started = stat(child.id()).map(|stat| stat.started);
        let process = Process {
            pid: child.id(),
            started,
            namespace: here.namespace.clone(),
        };
        assert!(!process.is_gone(&here));
        let later = Process {
            started: started.map(|at| at + 1),
            ..process.clone()
        };
        assert_eq!(later.is_gone(&here), started.is_some());
        let elsewhere = Process {
            namespace: Some("pid:[1]".into()),
            ..later
        };
        let unknown = Process {
            namespace: None,
            ..process.clone()
        };

        child.stdin.take();
        while cfg!(target_os = "linux") && !process.is_gone(&here) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(process.is_gone(&here));
        assert!(!elsewhere.is_gone(&here) && !unknown.is_gone(&here) && !unknown.is_gone(&unknown));
    }
}
