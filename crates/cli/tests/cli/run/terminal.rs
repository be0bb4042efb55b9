//! At a terminal: Ctrl-C, Ctrl-Z, and reading.

#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::Write;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use testkit::eventually;

use crate::common::pty::Session;
use crate::common::{LEASEHOLD, LIMIT, Store, lives, rows};

/// A command after `leasehold run URL`, as typed.
fn typed(store: &Store, words: &str) -> String {
    format!("{LEASEHOLD} run --url {} {words}", store.url)
}

/// A shell that leads a session, in the directory of the test.
fn shell(store: &Store, words: &[&str]) -> Session {
    Session::start(words, |command| {
        command.current_dir(store.dir.path());
    })
}

/// A shell that runs a line.
fn at_terminal(store: &Store, shell_name: &str, line: &str) -> Session {
    shell(store, &[shell_name, "-c", line])
}

/// A shell with job control that waits for commands.
fn interactive(store: &Store) -> Session {
    let mut session = shell(store, &["bash", "--norc", "--noprofile", "-i"]);
    session.until("prompt> ");
    session
}

#[test]
fn the_command_reads_from_the_terminal_at_once() {
    let store = Store::local();
    let mut session = at_terminal(
        &store,
        "sh",
        &typed(&store, "x sh -c 'read line; echo got=$line'"),
    );
    session.press("hello\n");
    session.until("got=hello");
    assert_eq!(session.end().code(), Some(0));
}

#[test]
fn ctrl_c_reaches_the_command_alone_which_decides() {
    let store = Store::local();
    let script = "x sh -c 'trap \"exit 9\" INT; touch ready; while :; do sleep 0.02; done'";
    let mut session = at_terminal(
        &store,
        "sh",
        &format!("{}; echo rc=$?", typed(&store, script)),
    );
    store.until("ready");
    session.press("\x03");
    session.until("rc=9");
    assert_eq!(session.end().code(), Some(0));
    let shown = session.shown();
    assert!(!shown.contains("leasehold:"), "{shown}");
}

#[test]
fn ctrl_c_that_ends_the_command_ends_the_script_around_it() {
    for shell_name in ["sh", "bash"] {
        let store = Store::local();
        let line = typed(&store, "x sh -c 'touch ready; exec sleep 1000'");
        let mut session = at_terminal(&store, shell_name, &format!("{line}; echo went on; true"));
        store.until("ready");
        session.press("\x03");
        session.end();
        let shown = session.shown();
        assert!(!shown.contains("went on"), "{shell_name}: {shown}");
        store.is_free();
    }
}

#[test]
fn ctrl_c_while_waiting_ends_the_script_around_it() {
    let store = Store::local();
    let _holder = store.hold();
    let line = typed(&store, "x touch ran");
    let mut session = at_terminal(&store, "bash", &format!("{line}; echo went on; true"));
    session.until("1st in line");
    session.press("\x03");
    session.end();
    let shown = session.shown();
    assert!(!shown.contains("went on"), "{shown}");
    assert!(!store.file("ran").exists());
    store.run("-n x true").is(75, &["0 waiting"]);
}

#[test]
fn ctrl_z_stops_it_and_fg_lets_it_go_on() {
    let store = Store::local();
    let mut session = interactive(&store);
    let script = "x sh -c 'echo rea''dy; read line; echo got=$line; exit 3'";
    session.press(&format!("{}\n", typed(&store, script)));
    session.until("ready");
    session.press("\x1a");
    session.until("leasehold: stopped; \"x\" is kept for ");
    session.until("s: continue within that time (fg), or the command is killed");
    session.until("Stopped");
    session.until("prompt> ");
    store.is_busy();
    session.press("fg\n");
    session.press("hello\n");
    session.until("got=hello");
    session.until("prompt> ");
    session.press("echo rc=$?\n");
    session.until("rc=3");
    store.is_free();
}

/// The command has been stopped by a loss, and the terminal is back.
#[test]
fn ctrl_z_stops_a_campaign_after_a_term() {
    let store = Store::local();
    let mut session = interactive(&store);
    let script = "x sh -c 'echo $LEASEHOLD_TERM > term; exec sleep 1000'";
    let line = typed(&store, script).replace(" run ", " elect ");
    session.press(&format!("{line}\n"));
    let term = store.number("term").to_string();
    let broken = store.verb("break", &["x", "--if-fence", &term]);
    broken.is(0, &["was broken"]);
    let _holder = store.hold();
    session.until("campaigning again");
    session.until("1st in line");
    session.press("\x1a");
    session.until("Stopped");
    session.until("prompt> ");
    session.press("fg\n");
    session.until("1st in line");
    session.press("\x03");
    session.until("prompt> ");
    session.press("echo rc=$?\n");
    session.until("rc=130");
}

/// Only the release shows that the term was lost before. Ctrl-C reaches the command alone.
#[test]
fn ctrl_c_that_ends_a_lost_term_ends_the_campaign() {
    let store = Store::redis();
    let script = "--ttl 1h x sh -c 'touch ready; exec sleep 1000'";
    let line = typed(&store, script).replace(" run ", " elect ");
    let mut session = at_terminal(&store, "bash", &format!("{line}; echo went on; true"));
    store.until("ready");
    store.server().cli(&["DEL", "x"]);
    session.press("\x03");
    session.end();
    let shown = session.shown();
    assert!(shown.contains("was lost"), "{shown}");
    for again in ["campaigning again", "went on"] {
        assert!(!shown.contains(again), "{shown}");
    }
}

#[test]
fn ctrl_z_promises_no_lock_that_is_lost_or_will_be() {
    let store = Store::redis();
    let mut session = interactive(&store);
    // Without other programs: a shell that is stopped while it starts one (vfork) stops only after that start.
    let script = "x sh -c ': > ready; read line < let-go'";
    mkfifo(&store.file("let-go"), Mode::S_IRWXU).expect("make a pipe");
    let table = r#"
        1h | or the lock becomes free and the command goes on WITHOUT it
        6s | stopped; "x" was lost before
    "#;
    for [ttl, says] in rows(table) {
        let words = format!("--ttl {ttl} --on-lost warn {script}\n");
        session.press(&typed(&store, &words));
        store.until("ready");
        if ttl == "6s" {
            store.server().cli(&["DEL", "x"]);
            session.until("command goes on WITHOUT it (--on-lost warn)");
        }
        session.press("\x1a");
        session.until(says);
        session.until("prompt> ");
        session.press("fg\n");
        // For reading as well: a pipe that is opened for writing alone waits for its reader.
        let mut open = File::options();
        let pipe = open.read(true).write(true).open(store.file("let-go"));
        let mut pipe = pipe.expect("open the pipe");
        pipe.write_all(b"go on\n").expect("write to the pipe");
        session.until("prompt> ");
        std::fs::remove_file(store.file("ready")).expect("it is there");
    }
}

#[test]
fn in_the_background_it_stops_when_it_wants_to_read() {
    let store = Store::local();
    let mut session = interactive(&store);
    let script = typed(&store, "x sh -c 'read line; echo got=$line'");
    session.press(&format!("{script} &\n"));
    session.until("leasehold: stopped");
    // The shell reports it at its next prompt.
    eventually(LIMIT, "the job is stopped", || {
        session.press("jobs\n");
        session.until("prompt> ");
        session.shown().contains("Stopped")
    });
    session.press("fg\n");
    session.press("hello\n");
    session.until("got=hello");
    session.until("prompt> ");
    store.is_free();
}

#[test]
fn stopped_for_too_long_it_is_killed_and_not_continued() {
    let store = Store::local();
    let mut session = interactive(&store);
    // Without other programs: a shell that is stopped while it starts one (vfork) stops only after that start.
    let script = "--ttl 6s x sh -c 'echo $$ > pid; while :; do echo > beat; done'";
    session.press(&format!("{}\n", typed(&store, script)));
    let pid = store.number("pid");
    session.press("\x1a");
    session.until("Stopped");
    session.until("prompt> ");
    // Another client gets the lock: the lease has ended.
    store.run("-w 20 x rm -f beat").is(0, &[]);
    session.press("fg\n");
    session.until("was lost");
    session.until("prompt> ");
    session.press("echo rc=$?\n");
    session.until("rc=79");
    assert!(!store.file("beat").exists() && !lives(pid));
}

#[test]
fn others_in_a_pipeline_can_use_the_terminal() {
    let store = Store::local();
    let mut session = interactive(&store);
    let script = "x sh -c 'echo from command; touch runs; while ! [ -e go ]; do sleep 0.02; done'";
    let line = typed(&store, script);
    session.press(&format!(
        "{line} | sh -c 'while ! [ -e runs ]; do sleep 0.02; done; read key < /dev/tty; echo key=$key; touch go; cat'\n"
    ));
    session.press("q\n");
    session.until("key=q");
    session.until("from command");
    session.until("prompt> ");
    // The command itself may read from the terminal too.
    let line = typed(&store, "x sh -c 'read key < /dev/tty; echo command=$key'");
    session.press(&format!("{line} | cat\n"));
    session.press("z\n");
    session.until("command=z");
    session.until("prompt> ");
    // Ctrl-C then goes to all processes of the pipeline.
    let line = typed(&store, "x sh -c 'touch ready; exec sleep 1000'");
    session.press(&format!("{line} | cat\n"));
    store.until("ready");
    session.press("\x03");
    session.until("prompt> ");
    store.is_free();
}

/// Ctrl-C then reaches the processes that the command left, and the second Ctrl-C kills them.
#[test]
fn ctrl_c_reaches_what_the_command_left_behind() {
    let store = Store::local();
    let mut session = interactive(&store);
    let script = "x sh -c '(while :; do sleep 0.02; done) & echo $! > pid; exit 3'";
    session.press(&format!("{}\n", typed(&store, script)));
    let left = store.number("pid");
    session.until("are still running");
    session.press("\x03");
    session.until("^C");
    // The system may deliver two signals as one, so the test presses again.
    eventually(LIMIT, "the second is heard", || {
        session.press("\x03");
        std::thread::sleep(std::time::Duration::from_millis(100));
        !lives(left)
    });
    session.until("prompt> ");
    session.press("echo rc=$?\n");
    session.until("rc=");
    store.is_free();
}

#[test]
fn one_line_is_rewritten_while_waiting() {
    let store = Store::local();
    let holder = store.hold();
    let mut session = at_terminal(&store, "sh", &typed(&store, "-w 10m x echo ran"));
    session.until("\r\x1b[2K");
    session.until("leasehold: waiting for \"x\", 1st in line: held ");
    session.until("/10m00s]");
    session.until("\r\x1b[2K");
    store.let_go();
    session.until("\r\x1b[2Kleasehold: got \"x\" after ");
    session.until("ran");
    assert_eq!(session.end().code(), Some(0));
    holder.ends(0, &[]);
}

/// With `stty tostop` the system stops background writers, which would stop the wrapper's renewals.
#[test]
fn tostop_terminal_does_not_stop_wrapper_and_is_restored() {
    let store = Store::redis();
    let script = "--ttl 6s x sh -c 'stty tostop -echo; trap : TERM; touch ready; while :; do sleep 0.02; done'";
    let line = format!("{}; echo rc=$?; stty -a", typed(&store, script));
    let mut session = at_terminal(&store, "sh", &line);
    store.until("ready");
    store.server().cli(&["DEL", "x"]);
    session.until("stopping the command");
    session.until("rc=79");
    assert_eq!(session.end().code(), Some(0));
    let shown = session.shown();
    let is_restored = shown.contains("-tostop") && !shown.contains("-echo ");
    assert!(is_restored, "{shown}");
}
