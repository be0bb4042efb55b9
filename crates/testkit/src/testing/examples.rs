//! Runs the examples of the crate whose test this is.

use std::process::Command;

use super::server::RedisServer;

/// The outputs of an example, without a server and with one. Cargo builds its program with the tests.
pub fn outputs(name: &str) -> [String; 2] {
    let mut path = std::env::current_exe().expect("a test has a path");
    path.pop();
    path.pop();
    let example = path.join("examples").join(name);
    let server = RedisServer::start();
    let url = server.url();
    let ways: [&[&str]; 2] = [&[], &["--url", &url]];
    ways.map(|words| {
        let output = Command::new(&example).args(words).output();
        let output = output.expect("the example was built");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {said}");
        String::from_utf8(output.stdout).expect("it prints text")
    })
}
