//! The commands of `docs/http.md`, as printed there.

use nix::sys::signal::Signal;

use super::client::Served;
use crate::common::Store;

const PAGE: &str = include_str!("../../../../../docs/http.md");

/// The blocks of the page in this language.
fn blocks(language: &str) -> Vec<&'static str> {
    let blocks = PAGE.split("\n```").collect::<Vec<_>>();
    let of_language = |block: &&'static str| block.strip_prefix(language);
    blocks.iter().filter_map(of_language).collect()
}

#[test]
fn the_curl_of_the_page_works() {
    let store = Store::redis();
    let served = Served::start(&store, "");
    let [_, script] = blocks("sh\n")[..] else {
        panic!("the page has two blocks");
    };
    let run = store.program(&["sh", "-c", &format!("set -e\n{script}")]);
    let url = format!("http://{}", served.at);
    let run = run
        .env("URL", &url)
        .env("TOKEN", served.token.as_deref().unwrap());
    let done = run.output();
    done.is(0, &[]);
    assert_eq!(done.stderr, "");
    let schemas =
        ["lease/1", "released/1", "session/1"].map(|name| format!("\"leasehold.{name}\""));
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines.len(), schemas.len(), "{done:?}");
    for (line, schema) in lines.iter().zip(schemas) {
        assert!(line.contains(&schema), "{schema}: {done:?}");
    }
    store.run("-n report true").is(0, &[]);
}

#[test]
fn the_server_prints_what_the_page_shows() {
    let store = Store::local();
    let shown = blocks("text\n")[0];
    let served = store.verb("serve", "--listen 127.0.0.1:0").start();
    served.until_it_writes("token ");
    served.until_it_writes("\n");
    served.signal(Signal::SIGTERM);
    let printed = served.ends(143, &[]).stdout;
    let general = |text: &str| {
        let lines = text.trim().lines().map(|line| {
            let end = line.rfind([':', ' ']).expect("a value");
            line[..=end].to_owned()
        });
        lines.collect::<Vec<_>>()
    };
    assert_eq!(general(&printed), general(shown), "{printed}");
    let token = printed.trim().rsplit(' ').next().unwrap();
    assert_eq!(token.len(), 64, "{printed}");
}
