//! What `/proc` says about processes. On systems without it nothing is known.

use std::fs;

/// The flag for a forked process that has executed no program: `PF_FORKNOEXEC` in Linux' `sched.h`.
const FORK_NO_EXEC: u64 = 0x40;

/// The state of a process, from `/proc/PID/stat`.
pub(crate) struct ProcessStat {
    pub(crate) name: String,
    /// False for one that has ended and was not waited for.
    pub(crate) lives: bool,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// It was forked and has executed no program since.
    pub(crate) is_fork: bool,
    /// The start time in ticks since boot.
    pub(crate) started: u64,
}

impl ProcessStat {
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let line = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let line = String::from_utf8_lossy(&line);
        // The name may contain any character. The fields after its last bracket: state, parent, and so on, see proc(5).
        let (start, rest) = line.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let id = |at: usize| fields.get(at)?.parse().ok();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            name: start.split_once('(')?.1.to_owned(),
            lives: !["Z", "X"].contains(fields.first()?),
            parent: id(1)?,
            group: id(2)?,
            session: id(3)?,
            is_fork: number(6)? & FORK_NO_EXEC != 0,
            started: number(19)?,
        })
    }
}

/// The children of all threads of a process.
pub(crate) fn children(parent: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{parent}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let pids = lists.flat_map(|list| {
        let pids = list.split_whitespace().filter_map(|pid| pid.parse().ok());
        pids.collect::<Vec<i32>>()
    });
    pids.collect()
}
