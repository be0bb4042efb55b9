//! Runs the example as its first lines say, without a server and on a real one, and checks its output.

use std::path::PathBuf;
use std::process::Command;

use testkit::RedisServer;

/// The outputs of the example, without a server and with one. Cargo builds its binary with the tests.
fn outputs() -> [String; 2] {
    let server = RedisServer::start();
    let mut path: PathBuf = std::env::current_exe().expect("a test has a path");
    path.pop();
    path.pop();
    let example = path.join("examples").join("stampede");
    let url = server.url();
    let ways: [&[&str]; 2] = [&[], &["--url", &url]];
    ways.map(|words| {
        let output = Command::new(&example).args(words).output();
        let output = output.expect("the example was built");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        String::from_utf8(output.stdout).expect("it prints text")
    })
}

#[test]
fn a_stampede_is_one_rendering_for_each_expiry_with_the_guard() {
    for text in outputs() {
        let count = |name: &str, word: usize| -> u32 {
            let line = text.lines().find(|line| line.starts_with(name));
            let words: Vec<_> = line
                .expect("a line of its own")
                .split_whitespace()
                .collect();
            words[word].parse().expect("a count")
        };
        // `without the guard: N renderings`, `with the guard: N renderings for M expiries`.
        let (plain, guarded, expiries) = (
            count("without the guard", 3),
            count("with the guard", 3),
            count("with the guard", 6),
        );
        assert_eq!(guarded, expiries, "{text}");
        assert!(expiries >= 2 && plain > 4 * guarded, "{text}");
    }
}
