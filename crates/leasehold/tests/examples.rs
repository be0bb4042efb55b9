//! Runs every example as its first lines say, without a server and on a real one, and checks its output.

use std::path::PathBuf;
use std::process::Command;

use testkit::RedisServer;

/// The example's binary, which cargo builds with the tests.
fn example(name: &str) -> Command {
    let mut path: PathBuf = std::env::current_exe().expect("a test has a path");
    path.pop();
    path.pop();
    Command::new(path.join("examples").join(name))
}

/// The outputs of an example, without a server and with one.
fn prints(name: &str) -> Vec<String> {
    let server = RedisServer::start();
    let run = |command: &mut Command| {
        let output = command.output().expect("the example was built");
        assert!(
            output.status.success(),
            "{name}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("it prints text")
    };
    vec![
        run(&mut example(name)),
        run(example(name).args(["--url", &server.url()])),
    ]
}

#[test]
fn flash_sale_is_exact_with_the_lock_and_oversold_without() {
    for text in prints("flash_sale") {
        assert!(
            text.contains("with the lock:    10 of 10 items sold"),
            "{text}"
        );
        let oversold: u32 = text
            .split_whitespace()
            .nth(3)
            .and_then(|word| word.parse().ok())
            .expect("a count");
        assert!(oversold > 10, "{text}");
    }
}

#[test]
fn fenced_writes_keep_the_late_write_out() {
    for text in prints("fenced_writes") {
        assert!(
            text.contains("writes 110: refused, its fence is stale"),
            "{text}"
        );
        assert!(text.contains("B writes 101: accepted"), "{text}");
    }
}

#[test]
fn select_on_loss_stops_the_work() {
    for text in prints("select_on_loss") {
        let told = [
            "stopped after ",
            "the store says that no one holds it",
            "the next leader has fence",
        ];
        assert!(told.iter().all(|part| text.contains(part)), "{text}");
    }
}
