//! The command: its file, which is found before the lock is taken and without a shell, and its process. On Linux that dies
//! with this process. A signal goes to its process group only while the group is certain to be the command's.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use nix::libc::ECHILD;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{AccessFlags, Pid, access, getpgrp, getpid};
use tokio::signal::unix::{self, SignalKind};

use super::guardian::{self, Guardian};
use crate::exit::{Exit, MORE_RESOURCES, NOT_EXECUTABLE, NOT_FOUND, SOFTWARE, exit};
use crate::inherited_store::{self, Variables};
use crate::messages::{pasteable, say, shown};
use crate::processes::{ProcessStat, children};
use crate::sys;
use crate::terminal::Terminal;

/// The search path without `PATH`, as in the C library.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// A command whose file was found and executable.
#[derive(Debug)]
pub(crate) struct ResolvedCommand {
    /// The file.
    path: PathBuf,
    /// All arguments, including the name as typed.
    argv: Vec<OsString>,
}

impl ResolvedCommand {
    /// Searches for the first word of `argv` as `execvp` does. `argv` is not empty.
    pub(crate) fn find(argv: &[OsString]) -> Result<Self, Exit> {
        let name = first(argv);
        let path = look_for(name, env::var_os("PATH").as_deref())
            .map_err(|refusal| refusal.about(name))?;
        if let Some(missing) = interpreter(&path).filter(|interpreter| !interpreter.exists()) {
            return Err(exit!(
                NOT_FOUND,
                "{}: its interpreter {} is not there (exit {NOT_FOUND})\n    next    correct the first line of {}",
                shown(name),
                shown(missing.as_os_str()),
                shown(path.as_os_str())
            ));
        }
        Ok(Self {
            path,
            argv: argv.to_vec(),
        })
    }

    /// A `Command` with the words as typed.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        if let Some((name, arguments)) = self.argv.split_first() {
            command.arg0(name).args(arguments);
        }
        command
    }

    /// The default note for other clients: the command's file name, cut to `limit` bytes.
    pub(crate) fn note(&self, limit: usize) -> String {
        let name = Path::new(first(&self.argv)).file_name().unwrap_or_default();
        let mut note = name.to_string_lossy().into_owned();
        while note.len() > limit {
            note.pop();
        }
        note
    }

    /// The exit for a command that was found but could not be started.
    pub(crate) fn failed(&self, error: &io::Error) -> Exit {
        let (name, path) = (shown(first(&self.argv)), self.path.display());
        match error.kind() {
            // The system is out of files, processes or memory; the command is fine.
            _ if sys::is_shortage(error) => exit!(
                SOFTWARE,
                "{name}: cannot be started (exit {SOFTWARE}): a system call failed: {error}\n    next    {MORE_RESOURCES}"
            ),
            io::ErrorKind::NotFound => exit!(
                NOT_FOUND,
                "{name}: cannot be started (exit {NOT_FOUND}): {path} or the interpreter in its first line is not there"
            ),
            _ => exit!(
                NOT_EXECUTABLE,
                "{name}: cannot be started (exit {NOT_EXECUTABLE}): {path}: {error}"
            ),
        }
    }
}

/// The name of the command as typed.
fn first(argv: &[OsString]) -> &OsStr {
    argv.first().map_or(OsStr::new(""), OsString::as_os_str)
}

/// The interpreter in the first line of a script.
fn interpreter(path: &Path) -> Option<PathBuf> {
    let mut begin = Vec::new();
    // An unreadable file is accepted: a program need not be readable.
    let file = File::open(path).ok()?;
    file.take(256).read_to_end(&mut begin).ok()?;
    let line = begin
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let is_blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let word = line.split(is_blank).find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

/// The reason why the command cannot be run.
#[derive(Debug, PartialEq, Eq)]
enum NotRunnable {
    Nowhere,
    NoSuchFile,
    Directory,
    NotExecutable(PathBuf),
}

impl NotRunnable {
    fn about(self, name: &OsStr) -> Exit {
        let typed = name.to_string_lossy();
        let (name, typed) = (shown(name), pasteable(&typed));
        match self {
            Self::Nowhere => {
                let next = if name.starts_with("\"-") {
                    "options stand before the lock: leasehold run [OPTIONS] LOCK -- CMD"
                } else {
                    "check the spelling, or give a path: leasehold run LOCK -- ./COMMAND"
                };
                exit!(
                    NOT_FOUND,
                    "{name}: command not found in PATH (exit {NOT_FOUND})\n    next    {next}"
                )
            }
            Self::NoSuchFile => exit!(
                NOT_FOUND,
                "{name}: no such file (exit {NOT_FOUND})\n    next    check the path; it is relative to the current directory"
            ),
            Self::Directory => exit!(
                NOT_EXECUTABLE,
                "{name}: is a directory (exit {NOT_EXECUTABLE})\n    next    name a command in it: leasehold run LOCK -- {typed}/COMMAND"
            ),
            Self::NotExecutable(path) => {
                let path = path.to_string_lossy();
                let path = pasteable(&path);
                exit!(
                    NOT_EXECUTABLE,
                    "{name}: is not executable (exit {NOT_EXECUTABLE})\n    next    chmod +x {path}, or name its interpreter: leasehold run LOCK -- sh {path}"
                )
            }
        }
    }
}

fn look_for(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, NotRunnable> {
    if name.is_empty() {
        return Err(NotRunnable::Nowhere);
    }
    if name.as_bytes().contains(&b'/') {
        return judge(PathBuf::from(name));
    }
    // A file that is not executable is skipped, and reported only if no other is found.
    let mut refusal = NotRunnable::Nowhere;
    for directory in env::split_paths(path.unwrap_or(OsStr::new(DEFAULT_PATH))) {
        // An empty entry means the current directory; `exec` needs it explicitly.
        let directory = if directory.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            directory
        };
        match judge(directory.join(name)) {
            Ok(found) => return Ok(found),
            Err(NotRunnable::NotExecutable(path)) if refusal == NotRunnable::Nowhere => {
                refusal = NotRunnable::NotExecutable(path);
            }
            Err(_) => {}
        }
    }
    Err(refusal)
}

fn judge(file: PathBuf) -> Result<PathBuf, NotRunnable> {
    match file.metadata() {
        Ok(metadata) if metadata.is_dir() => Err(NotRunnable::Directory),
        Ok(metadata) if metadata.is_file() && access(&file, AccessFlags::X_OK).is_ok() => Ok(file),
        Ok(_) => Err(NotRunnable::NotExecutable(file)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(NotRunnable::NotExecutable(file))
        }
        Err(_) => Err(NotRunnable::NoSuchFile),
    }
}

/// A running command in its own process group. Dropping it kills the group.
#[derive(Debug)]
pub(crate) struct Child {
    id: Pid,
    news: unix::Signal,
    ended: Option<ExitStatus>,
}

impl Child {
    /// Starts `program`. It gets `terminal` if this process may pass it on. Must be called from the main thread.
    pub(crate) fn start(
        program: &ResolvedCommand,
        variables: &Variables,
        terminal: Option<&Terminal>,
        guardian: &Guardian,
    ) -> io::Result<Self> {
        // Listen before the start: the command may end at once.
        let news = unix::signal(SignalKind::child())?;
        let mut command = program.command();
        inherited_store::apply(variables, &mut command);
        command.process_group(0);
        let handed = terminal.filter(|terminal| terminal.is_for_the_command_alone());
        sys::prepare(
            &mut command,
            handed.map(Terminal::as_fd),
            guardian.announcement_hook(),
        );
        let child = command.spawn().inspect_err(|_| {
            if let Some(terminal) = handed {
                // The child that failed to start the command had already taken the terminal.
                terminal.give_to(getpgrp());
            }
        })?;
        let id = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        Ok(Self {
            id,
            news,
            ended: None,
        })
    }

    /// The process group of the command. Its number is the command's process id.
    pub(crate) fn group(&self) -> Pid {
        self.id
    }

    /// Waits until the state of the command may have changed.
    pub(crate) async fn changed(&mut self) {
        if self.news.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Notices a change of state since the last call. Returns the signal that has stopped the command, if one has. Also
    /// reaps all other children of this process.
    pub(crate) fn change(&mut self) -> Option<i32> {
        let status = loop {
            match sys::next_change() {
                Ok(Some((id, status))) if id == self.id => break status,
                Ok(Some(_)) => {}
                // Another part of this program reaped the child, which is a bug: the child has ended and its
                // status is lost.
                Err(error) if error.raw_os_error() == Some(ECHILD) && self.ended.is_none() => {
                    break ExitStatus::from_raw(i32::from(SOFTWARE) << 8);
                }
                Ok(None) | Err(_) => return None,
            }
        };
        let stopped = status.stopped_signal();
        if stopped.is_none() {
            self.ended = Some(status);
        }
        stopped
    }

    /// Sends a signal to the process group.
    pub(crate) fn signal(&self, signal: Signal) {
        // Fails when the group is empty. The number stays the group's while a member lives, and the system
        // reuses it only after a whole round of process ids.
        let _sent: nix::Result<()> = killpg(self.id, signal);
    }

    /// Names the live processes that left the command's group: no signal to the group reaches them, and they do
    /// not keep the lock. Only on Linux, where this process is their subreaper.
    pub(crate) fn warn_of_strays(&mut self, guardian: &Guardian) {
        // Reaps ended children.
        let _known: Option<i32> = self.change();
        let (mut strays, mut parents) = (Vec::new(), vec![getpid().as_raw()]);
        while let Some(parent) = parents.pop() {
            for pid in children(parent) {
                let Some(seen) = ProcessStat::of(pid).filter(|seen| seen.lives) else {
                    continue;
                };
                let is_guardian = seen.name.as_bytes() == guardian::NAME.to_bytes();
                if seen.group == self.id.as_raw() {
                    // A process of the group may still have children outside of it.
                    parents.push(pid);
                } else if pid != guardian.id.as_raw() && !is_guardian {
                    // A guardian, also that of a killed inner run, ends by itself.
                    strays.push(format!("pid {pid} ({})", seen.name));
                }
            }
        }
        if !strays.is_empty() {
            say(&format!(
                "the command has left processes outside of its group, which still run and do not keep the lock: {}",
                strays.join(", ")
            ));
        }
    }

    /// The exit status of the command, if it has ended. Other processes of its group may still run.
    pub(crate) fn status(&self) -> Option<ExitStatus> {
        self.ended
    }

    /// True if a process of the group is left.
    pub(crate) fn group_lives(&self) -> bool {
        killpg(self.id, None) != Err(nix::errno::Errno::ESRCH)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Only a panic drops a running command.
        if self.ended.is_none() {
            self.signal(Signal::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(path: &Path, mode: u32) {
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn looks_along_the_path_and_passes_over_what_cannot_run() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        for directory in [&first, &second] {
            fs::create_dir(directory).unwrap();
        }
        file(&first.join("tool"), 0o644);
        file(&second.join("tool"), 0o755);
        file(&first.join("notes"), 0o644);
        fs::create_dir(second.join("folder")).unwrap();
        let path = env::join_paths([&first, &second]).unwrap();
        let look = |name: &str| look_for(OsStr::new(name), Some(&path));

        assert_eq!(look("tool"), Ok(second.join("tool")));
        assert_eq!(
            look("notes"),
            Err(NotRunnable::NotExecutable(first.join("notes")))
        );
        assert_eq!(look("folder"), Err(NotRunnable::Nowhere));
        assert_eq!(look("missing"), Err(NotRunnable::Nowhere));
        assert_eq!(look(""), Err(NotRunnable::Nowhere));
        assert_eq!(
            look(second.join("folder").to_str().unwrap()),
            Err(NotRunnable::Directory)
        );
        assert_eq!(
            look(second.join("missing").to_str().unwrap()),
            Err(NotRunnable::NoSuchFile)
        );
    }

    #[test]
    fn a_system_without_processes_is_no_fault_of_the_command() {
        use nix::libc::{E2BIG, EACCES, EAGAIN, EMFILE, ENFILE, ENOENT, ENOMEM};
        let program = ResolvedCommand {
            path: PathBuf::from("/x"),
            argv: vec!["x".into()],
        };
        let codes = [EAGAIN, ENOMEM, EMFILE, ENFILE, EACCES, E2BIG, ENOENT]
            .map(|errno| program.failed(&io::Error::from_raw_os_error(errno)).code());
        assert_eq!(codes, [70, 70, 70, 70, 126, 126, 127]);
    }

    #[test]
    fn the_note_is_the_name_of_the_file() {
        let program = |name: &str| ResolvedCommand {
            path: PathBuf::from("/x"),
            argv: vec![name.into(), "--secret=1".into()],
        };
        assert_eq!(program("/opt/app/migrate.sh").note(128), "migrate.sh");
        assert_eq!(program(&"ü".repeat(100)).note(127), "ü".repeat(63));
    }
}
