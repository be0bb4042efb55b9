//! The few system calls that need `unsafe`. Must never be the place of a decision.

#![allow(
    unsafe_code,
    reason = "fork hooks, waitpid and signal dispositions have no safe form that does what is needed here"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use nix::libc;
use nix::sys::signal::{
    SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, kill, killpg, sigaction,
    sigprocmask,
};
use nix::unistd::{Pid, getpgrp, getpid, getppid, tcsetpgrp};

/// Makes the child, before it becomes the command, die when this process is killed, and the foreground of `terminal`.
///
/// The kernel counts the *thread* that starts the child as its parent here: start it from one that lives as long as the
/// process.
pub(crate) fn prepare(command: &mut Command, terminal: Option<BorrowedFd<'_>>) {
    let parent = getpid();
    let terminal = terminal.map(|terminal| terminal.as_raw_fd());
    let hook = move || {
        #[cfg(target_os = "linux")]
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        if getppid() != parent {
            // The parent died before the line above.
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        if let Some(terminal) = terminal {
            // SAFETY: the terminal is open for as long as this process runs, and a fork has its own copy.
            let terminal = unsafe { BorrowedFd::borrow_raw(terminal) };
            // A command without the terminal is worth more than none: an error only means that it runs in the background.
            let _foreground: nix::Result<()> = give_terminal(terminal, getpid());
        }
        // We do without it (`terminal::write_from_background`); the command is to be stopped as it would be without us.
        sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&only(Signal::SIGTTOU)), None)?;
        Ok(())
    };
    // SAFETY: the hook runs between fork and exec. It makes system calls only: no allocation, no lock.
    unsafe { command.pre_exec(hook) };
}

/// Makes `group` the foreground of `terminal`. Works from the background, where the system would stop us for it.
pub(crate) fn give_terminal(terminal: impl AsFd, group: Pid) -> nix::Result<()> {
    let mut before = SigSet::empty();
    sigprocmask(
        SigmaskHow::SIG_BLOCK,
        Some(&only(Signal::SIGTTOU)),
        Some(&mut before),
    )?;
    let given = tcsetpgrp(terminal, group);
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
    given
}

/// A set of one signal.
pub(crate) fn only(signal: Signal) -> SigSet {
    let mut set = SigSet::empty();
    set.add(signal);
    set
}

/// How many columns `terminal` has, if it says so.
pub(crate) fn columns(terminal: impl AsFd) -> Option<usize> {
    let mut size = std::mem::MaybeUninit::<libc::winsize>::zeroed();
    // SAFETY: `size` is a valid place for the result, and zero bytes are a valid `winsize`.
    let size = unsafe {
        let asked = libc::ioctl(
            terminal.as_fd().as_raw_fd(),
            libc::TIOCGWINSZ,
            size.as_mut_ptr(),
        );
        (asked == 0).then(|| size.assume_init())
    };
    size.map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns > 0)
}

/// What became of the child since the last call: stopped, or ended, after which its number belongs to the system again.
///
/// Not nix' `waitpid`, which refuses the statuses of real-time signals, and not `Child::try_wait`, which does not tell of
/// stops.
pub(crate) fn changed(child: Pid) -> io::Result<Option<ExitStatus>> {
    let mut status = 0;
    // SAFETY: `status` is a valid place for the result.
    match unsafe {
        libc::waitpid(
            child.as_raw(),
            &raw mut status,
            libc::WNOHANG | libc::WUNTRACED,
        )
    } {
        0 => Ok(None),
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(Some(ExitStatus::from_raw(status))),
    }
}

/// Whether this process was started with `signal` ignored (`nohup`, a background job of a script). Such a signal is not
/// for us to catch.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action this only reads; zero bytes are a valid `sigaction`.
    let action = unsafe {
        let read = libc::sigaction(signal as libc::c_int, std::ptr::null(), action.as_mut_ptr());
        (read == 0).then(|| action.assume_init())
    };
    action.is_some_and(|action| action.sa_sigaction == libc::SIG_IGN)
}

/// Stops our process group as Ctrl-Z does, and returns when it goes on; or at once, where there is no shell that could
/// make it go on.
pub(crate) fn stop_own_group() {
    with_default_action(Signal::SIGTSTP, || killpg(getpgrp(), Signal::SIGTSTP));
}

/// Dies of SIGINT, alone or with the rest of our process group.
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
    // SAFETY: neither action runs code of ours: the default one, and the one that tokio installed.
    let Ok(before) = (unsafe { sigaction(signal, &default) }) else {
        return;
    };
    let _sent: nix::Result<()> = act();
    // SAFETY: as above.
    let _restored: nix::Result<SigAction> = unsafe { sigaction(signal, &before) };
}
