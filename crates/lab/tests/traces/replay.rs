//! Replays of traces on real servers: true ones are reproduced, false ones are not.

use std::thread;
use std::time::Duration;

use leasehold_lab::ladder::check::RungResult;
use leasehold_lab::ladder::redis::Reply;
use leasehold_lab::ladder::replay::{ReplayVerdict, Replayed, replay};
use leasehold_lab::ladder::trace::{LadderEvent, Trace};
use testkit::RedisServer;

use crate::BROKEN;
use crate::tale::all_that_can_happen;

/// Short for a test. On a slow machine the replay makes ticks longer by itself.
const TICK: Duration = Duration::from_millis(60);

/// Replays mostly wait for the next tick, so some run in parallel.
const SIDE_BY_SIDE: usize = 4;

#[test]
fn every_counterexample_is_reproduced() {
    let part = BROKEN.len().div_ceil(SIDE_BY_SIDE);
    thread::scope(|scope| {
        for rungs in BROKEN.chunks(part) {
            scope.spawn(|| rungs.iter().for_each(|(_, found)| is_reproduced(found)));
        }
    });
}

fn is_reproduced(found: &RungResult) {
    let RungResult::Broken(story) = found else {
        panic!("{found:?}");
    };
    let played = on_own_servers(story);
    assert_eq!(played.verdict, ReplayVerdict::Reproduced, "{played}");
    // The last line is the violation.
    assert!(played.steps.last().unwrap().wrong.is_some(), "{played}");
}

fn on_own_servers(trace: &Trace) -> Replayed {
    replay(trace, &[], TICK).unwrap()
}

#[test]
fn a_true_story_is_reproduced() {
    let played = on_own_servers(&all_that_can_happen());
    assert_eq!(played.verdict, ReplayVerdict::Reproduced, "{played}");
}

#[test]
fn a_wrong_reply_is_not_reproduced() {
    let mut story = all_that_can_happen();
    let LadderEvent::Message(message) = &mut story.lines[1].event else {
        panic!("the second line is a question");
    };
    message.reply = Some(Reply::Ok);
    differs_at(&story, 2, "the reply: OK in the model, (nil) in truth");
}

#[test]
fn a_wrong_key_and_a_wrong_ttl_are_not_reproduced() {
    let mut story = all_that_can_happen();
    story.lines[3].keys[0].clear();
    differs_at(
        &story,
        4,
        "the keys: none in the model, lock=c1-1 for 1 in truth",
    );

    let mut story = all_that_can_happen();
    story.lines[0].keys[0][0].2 = Some(3);
    differs_at(
        &story,
        1,
        "lock=c1-1 for 3 in the model, lock=c1-1 for 2 in truth",
    );
}

fn differs_at(story: &Trace, at: usize, what: &str) {
    let played = on_own_servers(story);
    let ReplayVerdict::NotReproduced { step, differs } = &played.verdict else {
        panic!("reproduced what never happened:\n{played}");
    };
    assert_eq!(*step, at, "{played}");
    assert!(differs.contains(what), "{differs}");
}

#[test]
fn foreign_server_is_left_clean_and_password_hidden() {
    let servers = [
        RedisServer::builder().password("S3CR3T").start(),
        RedisServer::start(),
    ];
    servers.iter().for_each(put_a_key_of_somebody_else);
    let urls = servers.each_ref().map(url);
    let played = replay(&all_that_can_happen(), &urls, TICK).unwrap();
    assert_eq!(played.verdict, ReplayVerdict::Reproduced, "{played}");
    let shown = format!(
        "{played} {played:?} {}",
        serde_json::to_string(&played).unwrap()
    );
    assert!(!shown.contains("S3CR3T"), "{shown}");
    assert!(shown.contains("not ours to kill"), "{shown}");
    servers.iter().for_each(has_only_that);
}

/// The key has the same name as the ladder's lock.
fn put_a_key_of_somebody_else(server: &RedisServer) {
    let mut connection = connection(server);
    redis::cmd("SET")
        .arg("lock")
        .arg("mine")
        .exec(&mut connection)
        .unwrap();
}

fn has_only_that(server: &RedisServer) {
    let mut connection = connection(server);
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    let value: String = redis::cmd("GET")
        .arg("lock")
        .query(&mut connection)
        .unwrap();
    assert_eq!((keys, value), (vec!["lock".to_owned()], "mine".to_owned()));
}

fn connection(server: &RedisServer) -> redis::Connection {
    let client = redis::Client::open(url(server)).unwrap();
    client.get_connection().unwrap()
}

/// The URL with the password.
fn url(server: &RedisServer) -> String {
    let login = server
        .password()
        .map_or(String::new(), |password| format!(":{password}@"));
    server.url().replace("//", &format!("//{login}"))
}

#[test]
fn bad_url_is_not_shown_and_url_for_two_servers_is_refused() {
    let story = all_that_can_happen();
    let url = "redis://127.0.0.1:1/".to_owned();
    let urls = ["nonsense://:S3CR3T@[".to_owned(), url.clone()];
    let broken = replay(&story, &urls, TICK).unwrap_err();
    assert!(!broken.contains("S3CR3T"), "{broken}");
    let few = replay(&story, &[url], TICK).unwrap_err();
    assert!(few.contains("give --url 2 times"), "{few}");
}
