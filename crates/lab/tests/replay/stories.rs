//! Replays of traces on real servers: true ones are reproduced, false ones are not.

use std::time::Duration;

use leasehold_lab::ladder::place::Place;
use leasehold_lab::ladder::redis::{Key, ModelServer, RedisCommand, Reply, Tick, Value};
use leasehold_lab::ladder::replay::{ReplayVerdict, Replayed, replay};
use leasehold_lab::ladder::trace::{LadderEvent, LadderMessage, Line, Trace};
use testkit::RedisServer;

/// Short for a test. On a slow machine the replay makes ticks longer by itself.
const TICK: Duration = Duration::from_millis(60);

/// Builds a trace of arbitrary events, with the model of Redis.
struct Teller {
    time: Tick,
    servers: [ModelServer; 2],
    jumped: [Tick; 2],
    lines: Vec<Line>,
}

impl Teller {
    fn new() -> Self {
        Self {
            time: 0,
            servers: [ModelServer::default(); 2],
            jumped: [0; 2],
            lines: Vec::new(),
        }
    }

    fn ask(&mut self, client: u8, server: u8, command: RedisCommand, is_lost: bool) {
        let reply = self.reply(server, command);
        self.happens(LadderEvent::Message(LadderMessage {
            client,
            server,
            command,
            reply: Some(reply),
            is_late: false,
            is_lost,
        }));
    }

    /// A command arrives after its client has given it up.
    fn arrives(&mut self, client: u8, server: u8, command: RedisCommand) {
        let reply = self.reply(server, command);
        self.happens(LadderEvent::Message(LadderMessage {
            client,
            server,
            command,
            reply: Some(reply),
            is_late: true,
            is_lost: true,
        }));
    }

    fn reply(&mut self, server: u8, command: RedisCommand) -> Reply {
        let now = self.time + self.jumped[usize::from(server)];
        self.servers[usize::from(server)].apply(now, command)
    }

    fn tick(&mut self) {
        self.time += 1;
        self.happens(LadderEvent::Tick);
    }

    fn restarts(&mut self, server: u8, first: &[RedisCommand]) {
        self.servers[usize::from(server)].restart_empty();
        self.execute(server, first);
        let first = first.to_vec();
        self.happens(LadderEvent::Restarts { server, first });
    }

    fn rejoins(&mut self, server: u8, last: &[RedisCommand]) {
        self.execute(server, last);
        let last = last.to_vec();
        self.happens(LadderEvent::Rejoins { server, last });
    }

    fn execute(&mut self, server: u8, commands: &[RedisCommand]) {
        for &command in commands {
            self.reply(server, command);
        }
    }

    fn jumps(&mut self, server: u8, by: Tick) {
        self.jumped[usize::from(server)] += by;
        self.happens(LadderEvent::ClockJumps { server, by });
    }

    fn happens(&mut self, event: LadderEvent) {
        for (server, jumped) in self.servers.iter_mut().zip(self.jumped) {
            server.expire(self.time + jumped);
        }
        let keys = self.servers.iter().zip(self.jumped);
        let keys = keys
            .map(|(server, jumped)| server.keys(self.time + jumped))
            .collect();
        self.lines.push(Line {
            time: self.time,
            event,
            note: String::new(),
            keys,
            holders: Vec::new(),
            wrong: None,
        });
    }

    fn end(self) -> Trace {
        Trace {
            rung: "told",
            clients: 2,
            servers: 2,
            lock_servers: 2,
            lines: self.lines,
        }
    }
}

const FIRST: Value = Value::Owner(0, 0);
const SECOND: Value = Value::Owner(1, 0);

/// A lost reply, a crash, a late command, a jump, an expiry, a restart with a quarantine and without.
fn all_that_can_happen() -> Trace {
    let mut story = Teller::new();
    story.ask(0, 0, RedisCommand::SetNxPx(FIRST, 2), true);
    story.ask(1, 0, RedisCommand::SetNxPx(SECOND, 2), false);
    story.ask(1, 1, RedisCommand::TakeWithFence(SECOND, 3), false);
    story.tick();
    story.happens(LadderEvent::Message(LadderMessage {
        client: 0,
        server: 0,
        command: RedisCommand::DeleteIf(SECOND),
        reply: None,
        is_late: false,
        is_lost: false,
    }));
    story.happens(LadderEvent::Crashes { client: 0 });
    story.tick();
    story.ask(1, 0, RedisCommand::SetNxPx(SECOND, 3), false);
    story.arrives(0, 0, RedisCommand::DeleteIf(SECOND));
    story.ask(1, 0, RedisCommand::SetNxAndExpire(FIRST, 4), false);
    story.jumps(0, 3);
    story.restarts(1, &[]);
    story.ask(1, 1, RedisCommand::Get(Key::Lock), false);
    story.tick();
    story.ask(0, 0, RedisCommand::Get(Key::Lock), false);
    story.restarts(1, &[RedisCommand::SetNx(Key::Lock, Value::Nobody)]);
    story.ask(1, 1, RedisCommand::Propose(SECOND, 7, 2), false);
    story.tick();
    let counter = RedisCommand::Set(Key::Fence, Value::Number(6));
    story.rejoins(1, &[counter, RedisCommand::Del(Key::Lock)]);
    story.ask(0, 1, RedisCommand::Propose(FIRST, 6, 2), false);
    story.ask(1, 1, RedisCommand::Propose(SECOND, 7, 2), false);
    story.end()
}

fn on_own_servers(trace: &Trace) -> Replayed {
    replay(trace, &Place::Own, TICK).unwrap()
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
    let urls = servers.iter().map(url).collect();
    let played = replay(&all_that_can_happen(), &Place::Urls(urls), TICK).unwrap();
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
    let urls = |urls: &[&str]| Place::Urls(urls.iter().map(|&url| url.to_owned()).collect());
    let broken = replay(
        &story,
        &urls(&["nonsense://:S3CR3T@[", "redis://127.0.0.1:1/"]),
        TICK,
    )
    .unwrap_err();
    assert!(!broken.contains("S3CR3T"), "{broken}");
    let few = replay(&story, &urls(&["redis://127.0.0.1:1/"]), TICK).unwrap_err();
    assert!(few.contains("give --url 2 times"), "{few}");
}
