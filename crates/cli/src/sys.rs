//! The system calls that need `unsafe`.

#![allow(
    unsafe_code,
    reason = "fork hooks, waitpid and signal dispositions have no safe form that does what is needed here"
)]

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use nix::sys::signal::{
    SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, kill, killpg, sigaction,
    sigprocmask,
};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{
    ForkResult, Pid, SysconfVar, chdir, dup2_stdin, fork, getpgrp, getpid, getppid, setsid,
    sysconf, tcsetpgrp,
};

/// Installs a hook that runs in the child before it becomes the command. The child then dies with this process,
/// becomes the foreground of `terminal`, and runs `last`. An error of `last` prevents the start. `last` may make
/// system calls only.
///
/// The kernel regards the *thread* that starts the child as its parent: that thread must live as long as the
/// process.
pub(crate) fn prepare(
    command: &mut Command,
    terminal: Option<BorrowedFd<'_>>,
    last: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) {
    let parent = getpid();
    let terminal = terminal.map(|terminal| terminal.as_raw_fd());
    let hook = move || {
        #[cfg(target_os = "linux")]
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        if getppid() != parent {
            // The parent died before the call above.
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        if let Some(terminal) = terminal {
            // SAFETY: the terminal is open for as long as this process runs, and a fork has its own copy.
            let terminal = unsafe { BorrowedFd::borrow_raw(terminal) };
            // An error only means that the command runs in the background.
            let _foreground: nix::Result<()> = give_terminal(terminal, getpid());
        }
        // This process blocks SIGTTOU (`terminal::write_from_background`); the command must be stopped by it as
        // usual.
        sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&Signal::SIGTTOU.into()), None)?;
        last()
    };
    // SAFETY: the hook runs between fork and exec. It makes system calls only: no allocation, no lock.
    unsafe { command.pre_exec(hook) };
}

/// Makes `group` the foreground of `terminal`. Also works from the background, where the system would otherwise
/// stop this process.
pub(crate) fn give_terminal(terminal: impl AsFd, group: Pid) -> nix::Result<()> {
    let mut before = SigSet::empty();
    sigprocmask(
        SigmaskHow::SIG_BLOCK,
        Some(&Signal::SIGTTOU.into()),
        Some(&mut before),
    )?;
    let given = tcsetpgrp(terminal, group);
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
    given
}

/// The width of `terminal`, if known.
pub(crate) fn columns(terminal: impl AsFd) -> Option<usize> {
    let mut size = MaybeUninit::<libc::winsize>::zeroed();
    let fd = terminal.as_fd().as_raw_fd();
    // SAFETY: `size` is a valid place for the result, and zero bytes, which a failure leaves, are a valid `winsize`.
    let size = unsafe {
        libc::ioctl(fd, libc::TIOCGWINSZ, size.as_mut_ptr());
        size.assume_init()
    };
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Reaps any child that has ended, or reports one that has stopped. An ended child's process id is free for
/// reuse. `None` if there is no change, `ECHILD` if there is no child.
///
/// Not nix' `waitpid`, which refuses statuses of real-time signals, nor `Child::try_wait`, which does not report
/// stops.
pub(crate) fn next_change() -> io::Result<Option<(Pid, ExitStatus)>> {
    let mut status = 0;
    // SAFETY: `status` is a valid place for the result.
    match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::WUNTRACED) } {
        0 => Ok(None),
        -1 => Err(io::Error::last_os_error()),
        child => Ok(Some((Pid::from_raw(child), ExitStatus::from_raw(status)))),
    }
}

/// Reaps `child`, which is ending, unless it was reaped before.
pub(crate) fn reap(child: Pid) {
    let _reaped: nix::Result<WaitStatus> = waitpid(child, None);
}

/// A number in memory that is shared with processes that are split off later. The memory is never freed.
pub(crate) fn shared_number(value: u64) -> io::Result<&'static AtomicU64> {
    let read_write = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: allocates new memory, to which no other reference exists. The system rounds the length up to a page.
    let page =
        unsafe { mmap_anonymous(None, NonZeroUsize::MIN, read_write, MapFlags::MAP_SHARED) }?;
    // SAFETY: a page is large enough and aligned, its zero bytes are a number, and it stays mapped until this process ends.
    let number: &AtomicU64 = unsafe { page.cast().as_ref() };
    number.store(value, Ordering::SeqCst);
    Ok(number)
}

/// Forks a process named `name` that runs `work` with `line`. It has its own session, ignores all signals that
/// end or stop a process, and has no other open file.
///
/// This process may have several threads, but the fork has one. A missing thread may hold any lock of its
/// memory, so `work` makes system calls only: it neither allocates nor takes locks.
pub(crate) fn split_off(
    line: UnixStream,
    name: &CStr,
    work: impl FnOnce(UnixStream),
) -> io::Result<Pid> {
    // Blocks all signals until the fork ignores them, which may take a while on a busy host.
    let mut before = SigSet::empty();
    sigprocmask(
        SigmaskHow::SIG_SETMASK,
        Some(&SigSet::all()),
        Some(&mut before),
    )?;
    // SAFETY: the fork, here and in `isolate` and `work`, makes system calls only: no allocation, no lock.
    match unsafe { fork() } {
        Err(errno) => {
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
            Err(errno.into())
        }
        Ok(ForkResult::Parent { child }) => {
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
            Ok(child)
        }
        Ok(ForkResult::Child) => {
            // The fork must not run any later code of the original, including a panic's unwinding.
            let _done: std::thread::Result<()> = catch_unwind(AssertUnwindSafe(|| {
                if let Ok(line) = isolate(line, name) {
                    work(line);
                }
            }));
            // SAFETY: ends this process without running the exit handlers of the original.
            unsafe { libc::_exit(0) }
        }
    }
}

/// Closes and resets everything that the process inherited, except `line`.
fn isolate(line: UnixStream, name: &CStr) -> io::Result<UnixStream> {
    use Signal::{
        SIGABRT, SIGBUS, SIGCHLD, SIGFPE, SIGILL, SIGKILL, SIGSEGV, SIGSTOP, SIGSYS, SIGTRAP,
    };
    let kept = [
        SIGABRT, SIGBUS, SIGCHLD, SIGFPE, SIGILL, SIGKILL, SIGSEGV, SIGSTOP, SIGSYS, SIGTRAP,
    ];
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    for signal in Signal::iterator().filter(|signal| !kept.contains(signal)) {
        // SAFETY: ignoring a signal installs no handler.
        unsafe { sigaction(signal, &ignore) }?;
    }
    setsid()?;
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_name(name)?;
    #[cfg(not(target_os = "linux"))]
    let _unused = name;
    // A directory in use cannot be unmounted.
    chdir("/")?;
    dup2_stdin(line)?;
    // For a process that uses no other file again.
    let close = |fd| {
        // SAFETY: a number only; a file that is not there is an error.
        unsafe { libc::close(fd) };
    };
    for_files_from(1, 0, close);
    // SAFETY: 0 is the copy of `line`, and has no other owner.
    Ok(UnixStream::from(unsafe { OwnedFd::from_raw_fd(0) }))
}

/// Detaches the child: its own session, and no open file except the first three, so that a pipe of the caller
/// closes with this process.
#[cfg(feature = "cache")]
pub(crate) fn detach(command: &mut Command) {
    let close_on_exec = |fd| {
        // SAFETY: numbers only; a file that is not there is an error.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    };
    let hook = move || {
        setsid()?;
        for_files_from(3, CLOSE_RANGE_CLOEXEC, close_on_exec);
        Ok(())
    };
    // SAFETY: the hook runs between fork and exec. It makes system calls only: no allocation, no lock.
    unsafe { command.pre_exec(hook) };
}

/// The flag of Linux' `close_range` that marks files and closes none.
#[cfg(feature = "cache")]
const CLOSE_RANGE_CLOEXEC: libc::c_uint = 1 << 2;

/// Handles the files from number `first` on: with one call of `close_range`, or each `one` where that is missing.
fn for_files_from(first: RawFd, flags: libc::c_uint, one: impl Fn(RawFd)) {
    #[cfg(target_os = "linux")]
    // SAFETY: the caller has no use for these files, or has them marked only.
    if unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, flags) } == 0 {
        return;
    }
    #[cfg(not(target_os = "linux"))]
    let _unused = flags;
    let most = sysconf(SysconfVar::OPEN_MAX).ok().flatten();
    let most = most.and_then(|most| RawFd::try_from(most).ok());
    (first..most.unwrap_or(RawFd::MAX).clamp(256, 65_536)).for_each(one);
}

/// Sends all of `bytes` or fails: it neither waits nor raises a signal. One system call.
pub(crate) fn send(line: RawFd, bytes: &[u8]) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    #[cfg(not(target_os = "linux"))]
    let flags = libc::MSG_DONTWAIT;
    // SAFETY: `bytes` is valid for its length.
    let sent = unsafe { libc::send(line, bytes.as_ptr().cast(), bytes.len(), flags) };
    match usize::try_from(sent) {
        Ok(sent) if sent == bytes.len() => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EPIPE)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// True if `line` is readable, or closed, within `limit`. May return false too early.
pub(crate) fn readable_within(line: impl AsFd, limit: Duration) -> bool {
    let mut asked = [PollFd::new(line.as_fd(), PollFlags::POLLIN)];
    let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    poll(&mut asked, limit).is_ok_and(|ready| ready > 0)
}

/// The process that has made this socket and its other end; number 0 if unknown.
#[cfg(target_os = "linux")]
pub(crate) fn peer(socket: impl AsFd) -> Option<Pid> {
    let mut peer = MaybeUninit::<libc::ucred>::zeroed();
    let mut size = libc::socklen_t::try_from(size_of::<libc::ucred>()).ok()?;
    // SAFETY: `peer` is a valid place of `size` bytes, and zero bytes are a valid `ucred`.
    let peer = unsafe {
        let (fd, at) = (socket.as_fd().as_raw_fd(), peer.as_mut_ptr().cast());
        let asked = libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, at, &raw mut size);
        (asked == 0).then(|| peer.assume_init())
    };
    peer.map(|peer| Pid::from_raw(peer.pid))
}

/// The time in microseconds of the clock that includes suspend, as in `leasehold::Clock`. One system call.
pub(crate) fn clock_micros() -> u64 {
    #[cfg(target_os = "linux")]
    const COUNTS_SUSPEND: ClockId = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    const COUNTS_SUSPEND: ClockId = ClockId::CLOCK_MONOTONIC;
    let time = clock_gettime(COUNTS_SUSPEND).map(Duration::from);
    // Without a clock all deadlines have passed.
    time.map_or(u64::MAX, |time| {
        u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
    })
}

/// Checks that this process can open this many more files; else returns the error of the system.
pub(crate) fn have_room_for(files: usize) -> io::Result<()> {
    let stdin = io::stdin();
    let copies = (0..files).map(|_| stdin.as_fd().try_clone_to_owned());
    copies.collect::<io::Result<Vec<OwnedFd>>>().map(drop)
}

/// True if an error means that this process or its host is out of files, processes or memory.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let shortages = [libc::EMFILE, libc::ENFILE, libc::EAGAIN, libc::ENOMEM];
    error
        .raw_os_error()
        .is_some_and(|errno| shortages.contains(&errno))
}

/// A file descriptor that this process was started with, made close-on-exec. `None` if it does not exist.
pub(crate) fn inherited(fd: RawFd) -> Option<File> {
    // SAFETY: numbers only; a file that is not there is an error.
    let copy = unsafe {
        if fd > 2 && libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) < 0 {
            return None;
        }
        libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3)
    };
    // SAFETY: this process owns the copy.
    (copy >= 0).then(|| unsafe { File::from_raw_fd(copy) })
}

/// True if this process was started with `signal` ignored (`nohup`, a background job of a script). Such a signal
/// must not be caught.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action this only reads; zero bytes, which a failure leaves, are a valid `sigaction`.
    let action = unsafe {
        libc::sigaction(signal as libc::c_int, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// Stops the process group like Ctrl-Z, and returns when it continues; or at once if there is no shell to
/// continue it.
pub(crate) fn stop_own_group() {
    with_default_action(Signal::SIGTSTP, || killpg(getpgrp(), Signal::SIGTSTP));
}

/// Dies of SIGINT, alone or with the whole process group.
pub(crate) fn die_of_interrupt(group: bool) {
    with_default_action(Signal::SIGINT, || {
        if group {
            killpg(getpgrp(), Signal::SIGINT)
        } else {
            kill(getpid(), Signal::SIGINT)
        }
    });
}

fn with_default_action(signal: Signal, act: impl FnOnce() -> nix::Result<()>) {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    if is_ignored(signal) {
        return;
    }
    // SAFETY: both actions are valid: the default one, and the one that tokio installed.
    let Ok(before) = (unsafe { sigaction(signal, &default) }) else {
        return;
    };
    let _sent: nix::Result<()> = act();
    // SAFETY: as above.
    let _restored: nix::Result<SigAction> = unsafe { sigaction(signal, &before) };
}
