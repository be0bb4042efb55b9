//! The scripts, and how one is sent. A server may forget its scripts at any time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use leasehold_core::quorum::QuorumTerms;
use redis::aio::ConnectionLike;
use redis::{
    Cmd, ErrorKind, Pipeline, RedisError, RedisResult, Script, ServerErrorKind, Value, cmd, pipe,
};

use super::fault::{Redirect, is_forbidden, is_passing, without_arguments};
use super::resp::Command;
use crate::error::StoreError;

pub(super) const TAKE: usize = 0;
pub(super) const SETTLE: usize = 1;
pub(super) const ACQUIRE_MANY: usize = 2;
pub(super) const SETTLE_MANY: usize = 3;
pub(super) const BREAK: usize = 4;
pub(super) const INSPECT: usize = 5;
pub(super) const INDEX: usize = 6;
pub(super) const PROPOSE: usize = 7;
pub(super) const PROPOSE_MANY: usize = 8;
pub(super) const ONCE: usize = 9;
/// The scripts of the timestamp protocol and of cache entries follow those of locks.
#[cfg(feature = "timestamp")]
pub(super) const TIMESTAMP_ACQUIRE: usize = 10;
#[cfg(feature = "timestamp")]
pub(super) const TIMESTAMP_EXTEND: usize = 11;
#[cfg(feature = "timestamp")]
pub(super) const TIMESTAMP_RELEASE: usize = 12;
#[cfg(feature = "entries")]
pub(super) const CACHE_BEGIN: usize = if cfg!(feature = "timestamp") { 13 } else { 10 };
#[cfg(feature = "entries")]
pub(super) const CACHE_RENEW: usize = CACHE_BEGIN + 1;
#[cfg(feature = "entries")]
pub(super) const CACHE_COMMIT: usize = CACHE_BEGIN + 2;
#[cfg(feature = "entries")]
pub(super) const CACHE_ABANDON: usize = CACHE_BEGIN + 3;
#[cfg(feature = "entries")]
pub(super) const CACHE_INVALIDATE: usize = CACHE_BEGIN + 4;

/// The text of the script at this path in `lua`.
macro_rules! lua {
    ($path:literal) => {
        include_str!(concat!("../../../lua/", $path, ".lua"))
    };
}

const PRELUDE: &str = lua!("prelude");
const SEVERAL: &str = lua!("several");
#[cfg(feature = "timestamp")]
const TIMESTAMP: &str = lua!("timestamp/prelude");
#[cfg(feature = "entries")]
const CACHE: &str = lua!("cache/prelude");

/// A script in the two forms that servers understand.
struct ScriptSource {
    /// With the `#!lua` line, which Redis 7 and Valkey need for the flags.
    flagged: Text,
    /// Without that line, which Redis 6.2 takes for a syntax error.
    plain: Text,
}

struct Text {
    code: String,
    sha: String,
}

impl Text {
    fn new(code: String) -> Self {
        let sha = Script::new(&code).get_hash().to_owned();
        Self { code, sha }
    }
}

/// Made once for all connections: the hashes cost six million instructions.
static SOURCES: LazyLock<Vec<ScriptSource>> = LazyLock::new(sources);

/// All scripts, by the numbers above. The long scripts of the mutex begin with the prelude and the verbs that they
/// call. Before them comes the short way of a release, which needs no prelude. The scripts of the timestamp protocol and of cache entries begin with their own preludes. The others need
/// none.
fn sources() -> Vec<ScriptSource> {
    vec![
        ScriptSource::new(&[], lua!("mutex/take")),
        ScriptSource::new(&[], lua!("mutex/settle")),
        ScriptSource::new(
            &[
                PRELUDE,
                SEVERAL,
                lua!("mutex/refuse"),
                lua!("mutex/acquire"),
            ],
            lua!("mutex/acquire_many"),
        ),
        ScriptSource::new(
            &[
                lua!("mutex/hand_over"),
                PRELUDE,
                SEVERAL,
                lua!("mutex/extend"),
                lua!("mutex/release"),
            ],
            lua!("mutex/settle_many"),
        ),
        ScriptSource::new(&[PRELUDE, SEVERAL], lua!("mutex/break")),
        ScriptSource::new(&[PRELUDE, SEVERAL], lua!("mutex/inspect")),
        ScriptSource::new(&[], lua!("index")),
        ScriptSource::new(&[], lua!("quorum/propose")),
        ScriptSource::new(
            &[PRELUDE, SEVERAL, lua!("mutex/refuse")],
            lua!("quorum/propose_many"),
        ),
        ScriptSource::new(&[], lua!("once")),
        #[cfg(feature = "timestamp")]
        ScriptSource::new(&[TIMESTAMP], lua!("timestamp/acquire")),
        #[cfg(feature = "timestamp")]
        ScriptSource::new(&[TIMESTAMP], lua!("timestamp/extend")),
        #[cfg(feature = "timestamp")]
        ScriptSource::new(&[TIMESTAMP], lua!("timestamp/release")),
        #[cfg(feature = "entries")]
        ScriptSource::new(&[CACHE], lua!("cache/begin")),
        #[cfg(feature = "entries")]
        ScriptSource::new(&[CACHE], lua!("cache/renew")),
        #[cfg(feature = "entries")]
        ScriptSource::new(&[CACHE], lua!("cache/commit")),
        #[cfg(feature = "entries")]
        ScriptSource::new(&[CACHE], lua!("cache/abandon")),
        #[cfg(feature = "entries")]
        ScriptSource::new(&[CACHE], lua!("cache/invalidate")),
    ]
}

impl ScriptSource {
    /// Inserts the `needed` texts after the first line of `script`, which has the flags.
    fn new(needed: &[&str], script: &str) -> Self {
        let (flags, body) = script.split_once('\n').unwrap_or((script, ""));
        let plain = needed.concat() + body;
        Self {
            flagged: Text::new(format!("{flags}\n{plain}")),
            plain: Text::new(plain),
        }
    }

    const fn text(&self, plain: bool) -> &Text {
        if plain { &self.plain } else { &self.flagged }
    }
}

/// A script that needs of the server what each lock needs, and that some services refuse.
const TRIAL: &str = "return redis.call('TIME')";

/// The commands that delete a key if it has a certain value: of Redis 8.4, and of Valkey 9.
pub(super) const NATIVE: [&str; 2] = [DELEX, "DELIFEQ"];
pub(super) const DELEX: &str = "DELEX";

/// How a script is sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    /// Not as a script: each step is a command of its own.
    pub(super) native: Option<&'static str>,
    /// By its text, not its hash.
    by_text: bool,
    /// Without flags.
    plain: bool,
}

/// What a client agrees on with all clients of a quorum, and what it was told about its nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeTerms {
    pub(crate) terms: QuorumTerms,
    /// Each node writes a change to its disk before it answers, so that a restart loses nothing.
    pub(crate) durable: bool,
}

/// Where the fences of a server are counted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Counters {
    /// All together.
    #[default]
    Shared,
    /// By bucket of names, at a node of a quorum.
    ByBucket(NodeTerms),
    /// By slot, at a node of a cluster: the keys of a script must share a slot.
    BySlot,
}

/// All scripts, and the form that the server understands.
pub(super) struct Scripts {
    sources: &'static [ScriptSource],
    counters: Counters,
    /// The server is a node of a cluster.
    in_cluster: AtomicBool,
    /// How this client counts, and the server of the last connection: see [`Scripts::counts`].
    counts: RwLock<Arc<str>>,
    /// The server has refused a `#!lua` line.
    plain: AtomicBool,
    /// The server takes scripts by their text only.
    by_text: AtomicBool,
    /// The server of the last connection runs no scripts, or not for this user: what to tell the callers of a step.
    refused: RwLock<Option<StoreError>>,
    /// The place in [`NATIVE`] of the command that frees a lock; any other number stands for none.
    native: AtomicUsize,
}

impl Default for Scripts {
    fn default() -> Self {
        Self {
            sources: &SOURCES,
            counters: Counters::Shared,
            in_cluster: AtomicBool::new(false),
            counts: RwLock::new(Arc::default()),
            plain: AtomicBool::new(false),
            by_text: AtomicBool::new(false),
            refused: RwLock::default(),
            native: AtomicUsize::new(NATIVE.len()),
        }
    }
}

impl Scripts {
    /// The scripts for a server that counts fences in this way.
    pub(super) fn new(counters: Counters) -> Self {
        Self {
            counters,
            ..Self::default()
        }
    }

    /// Where the fences of this server are counted.
    pub(super) fn counters(&self) -> Counters {
        match self.counters {
            Counters::Shared if self.in_cluster.load(Ordering::Relaxed) => Counters::BySlot,
            counters => counters,
        }
    }

    /// Whether the server of the last connection is a node of a cluster.
    pub(super) fn is_in_cluster(&self, is_in: bool) {
        self.in_cluster.store(is_in, Ordering::Relaxed);
    }

    /// The quorum of which the server is a node, if it is one.
    pub(super) const fn node(&self) -> Option<NodeTerms> {
        match self.counters {
            Counters::Shared | Counters::BySlot => None,
            Counters::ByBucket(node) => Some(node),
        }
    }

    /// The last argument of each script at a node of a quorum, which compares it with its mark: the number of nodes, the longest TTL in
    /// milliseconds, and the server of the last connection.
    pub(super) fn counts(&self) -> Arc<str> {
        let counts = self.counts.read().unwrap_or_else(PoisonError::into_inner);
        counts.clone()
    }

    /// Another connection of this node leads to the server with this name in marks.
    pub(super) fn leads_to(&self, server: &str, terms: QuorumTerms) {
        let QuorumTerms { nodes, longest_ttl } = terms;
        let counts = format!("{nodes} {} {server}", longest_ttl.millis());
        *self.counts.write().unwrap_or_else(PoisonError::into_inner) = counts.into();
    }

    /// The scripts that every lock needs, in the order of loading.
    const fn hot(&self) -> [usize; 4] {
        match self.counters {
            Counters::Shared | Counters::BySlot => [SETTLE, SETTLE_MANY, TAKE, ACQUIRE_MANY],
            Counters::ByBucket(_) => [SETTLE, SETTLE_MANY, PROPOSE, PROPOSE_MANY],
        }
    }

    /// The scripts, with a mistake instead of the text that is `right`.
    #[cfg(test)]
    pub(super) fn broken(counters: Counters, right: &str, wrong: &str) -> Self {
        let mut scripts = Self::new(counters);
        let mut changed = 0;
        let mut sources = sources();
        for source in &mut sources {
            let places = source.plain.code.matches(right).count();
            assert!(places < 2, "more than one place has {right:?}");
            changed += places;
            for text in [&mut source.flagged, &mut source.plain] {
                *text = Text::new(text.code.replace(right, wrong));
            }
        }
        assert_ne!(changed, 0, "no script has {right:?}");
        scripts.sources = sources.leak();
        scripts
    }

    /// The scripts for a server that has refused a `#!lua` line.
    #[cfg(test)]
    pub(super) fn without_flags() -> Self {
        Self {
            plain: AtomicBool::new(true),
            ..Self::default()
        }
    }

    /// Everything that a server is asked to execute.
    #[cfg(test)]
    pub(super) fn all_texts(&self) -> String {
        let texts = self.sources.iter().map(|source| &*source.plain.code);
        texts.collect()
    }

    /// The script with this hash or text, and whether that is the one without flags.
    #[cfg(test)]
    pub(super) fn find(&self, word: &str) -> Option<(usize, bool)> {
        let scripts = 0..self.sources.len();
        let mut forms = scripts.flat_map(|script| [(script, false), (script, true)]);
        forms.find(|(script, plain)| {
            let text = self.sources[*script].text(*plain);
            text.sha == word || text.code == word
        })
    }

    /// Runs a script that only reads the clock, with this key: proxies take none without a key.
    pub(super) fn trial(key: &str) -> Cmd {
        let mut trial = cmd("EVAL");
        trial.arg(TRIAL).arg(1).arg(key);
        trial
    }

    /// After the server has refused that trial with this error: the error by which it refuses all scripts of locks, if it does.
    pub(super) async fn refuses(
        mut error: RedisError,
        connection: &mut impl ConnectionLike,
        key: &str,
    ) -> RedisResult<Option<RedisError>> {
        if Redirect::of(&error).is_some() {
            // The node has not the slot of the key. It runs what has no key.
            let mut trial = pipe();
            trial.cmd("EVAL").arg(TRIAL).arg(0);
            match last_error(trial, connection).await? {
                Some(refused) => error = refused,
                None => return Ok(None),
            }
        }
        if is_in_script(&error) {
            return Ok(Some(error));
        }
        if !is_about_scripts(&error) {
            return Ok(None);
        }
        let mut load = pipe();
        load.cmd("SCRIPT").arg("LOAD").arg(TRIAL);
        let hash = Script::new(TRIAL);
        load.cmd("EVALSHA").arg(hash.get_hash()).arg(1).arg(key);
        let by_hash = last_error(load, connection).await?;
        Ok(by_hash.and_then(|by_hash| {
            if is_unknown(&by_hash) {
                return Some(error);
            }
            is_in_script(&by_hash).then_some(by_hash)
        }))
    }

    /// Whether the server of the last connection runs no scripts, and what to tell.
    pub(super) fn are_refused(&self, why: Option<StoreError>) {
        *self.refused.write().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// What to tell instead of this error, if it is one of all scripts.
    pub(super) fn refusal(&self, error: &RedisError) -> Option<StoreError> {
        let refused = self.refused.read().unwrap_or_else(PoisonError::into_inner);
        let refused = refused.clone();
        refused.filter(|_| is_about_scripts(error) || is_in_script(error))
    }

    /// Asks whether the server knows the scripts that every lock needs, in both forms: see [`Scripts::to_load`].
    pub(super) fn known(&self) -> Cmd {
        let mut exist = cmd("SCRIPT");
        exist.arg("EXISTS");
        for plain in [false, true] {
            for script in self.hot() {
                exist.arg(&self.sources[script].text(plain).sha);
            }
        }
        exist
    }

    /// Loads the scripts that every lock needs and that the server does not have, so that no step has to be sent by its
    /// text. `knows` is the answer to [`Scripts::known`]. `is_old` says whether the server is too old for flags, if it
    /// reports its version. Scripts that free locks are loaded first: a server that can take a lock can then free it.
    pub(super) fn to_load(&self, knows: &[bool], is_old: Option<bool>) -> Option<Pipeline> {
        if let Some(is_old) = is_old {
            self.plain.store(is_old, Ordering::Relaxed);
        }
        let plain = self.plain.load(Ordering::Relaxed);
        let hot = self.hot();
        let in_form = knows.chunks_exact(hot.len()).nth(usize::from(plain))?;
        let mut load = pipe();
        for (script, _) in hot.into_iter().zip(in_form).filter(|(_, known)| !**known) {
            let text = self.sources[script].text(plain);
            load.cmd("SCRIPT").arg("LOAD").arg(&text.code);
        }
        (!load.is_empty()).then_some(load)
    }

    /// The command by which this server frees a lock, if it has one. Not at a node of a quorum, whose mark a script compares.
    pub(super) fn frees_by(&self, command: Option<&str>) {
        let command = command.filter(|_| self.node().is_none());
        let place = NATIVE.iter().position(|name| command == Some(*name));
        let place = place.unwrap_or(NATIVE.len());
        self.native.store(place, Ordering::Relaxed);
    }

    /// The form for steps that a command of the server can do.
    pub(super) fn native(&self) -> Form {
        let native = NATIVE.get(self.native.load(Ordering::Relaxed)).copied();
        Form {
            native,
            ..self.form()
        }
    }

    /// The form in which the server takes scripts, as far as it is known.
    pub(super) fn form(&self) -> Form {
        Form {
            native: None,
            by_text: self.by_text.load(Ordering::Relaxed),
            plain: self.plain.load(Ordering::Relaxed),
        }
    }

    /// The form that follows this one when the server has refused a script with this error, without a begin. `None` if no other one helps.
    pub(super) fn next_form(&self, form: Form, error: &RedisError) -> Option<Form> {
        if let Some(command) = form.native {
            if takes_no(command, error) {
                self.frees_by(None);
            }
            // The script also tells which holder it has found, and it may be allowed.
            return is_forbidden(error).then(|| self.form());
        }
        if !form.by_text && is_unknown(error) {
            self.by_text
                .store(is_about_scripts(error), Ordering::Relaxed);
            let by_text = true;
            return Some(Form { by_text, ..form });
        }
        if !form.plain && is_too_old_for_flags(error) {
            self.plain.store(true, Ordering::Relaxed);
            return Some(self.form());
        }
        None
    }

    /// Begins the command that runs a script. The number of keys, the keys and the arguments follow.
    pub(super) fn begin(&self, script: usize, form: Form, into: &mut Command) {
        let (verb, text) = self.verb(script, form);
        into.word(verb).word(text);
    }

    fn verb(&self, script: usize, form: Form) -> (&'static str, &str) {
        let text = self.sources[script].text(form.plain);
        if form.by_text {
            ("EVAL", &text.code)
        } else {
            ("EVALSHA", &text.sha)
        }
    }

    /// Runs a script in the form that the server takes. A refused script has changed nothing, so each attempt is safe. `write` writes the
    /// number of keys, the keys and the arguments.
    pub(super) async fn run(
        &self,
        script: usize,
        connection: &mut impl ConnectionLike,
        write: impl Fn(&mut Cmd),
    ) -> RedisResult<Value> {
        let mut form = self.form();
        loop {
            let (verb, text) = self.verb(script, form);
            let mut command = cmd(verb);
            write(command.arg(text));
            let answer = command.query_async(connection).await;
            let refused = answer.as_ref().err();
            match refused.and_then(|error| self.next_form(form, error)) {
                Some(next) => form = next,
                None => return answer,
            }
        }
    }
}

/// The error of the last request.
async fn last_error(
    requests: Pipeline,
    connection: &mut impl ConnectionLike,
) -> RedisResult<Option<RedisError>> {
    let mut requests = requests;
    let answers = requests.ignore_errors().query_async(connection).await;
    let last: Option<RedisResult<Value>> = Vec::pop(&mut answers?);
    Ok(last.and_then(RedisResult::err))
}

/// True if the server does not know the script by its hash, or takes no script by a hash. It has executed nothing.
fn is_unknown(error: &RedisError) -> bool {
    has_no_script(error) || is_about_scripts(error)
}

/// True if the server does not have the script with this hash.
fn has_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Words by which services and proxies refuse a command, often without its name.
const REFUSALS: [&str; 5] = [
    "unknown command",
    "unsupported command",
    "not support",
    "not allowed",
    "scripting",
];

/// True if the server or a proxy refuses the request since it is a script, or one that is named by its hash.
fn is_about_scripts(error: &RedisError) -> bool {
    let said = error.to_string();
    let said = without_arguments(&said).to_lowercase();
    let is_refusal = said.contains("eval") || REFUSALS.iter().any(|words| said.contains(words));
    is_refusal && is_forbidden(error) && !has_no_script(error) && !said.contains(IN_SCRIPT)
}

/// Where the server says that the error is in a script.
const IN_SCRIPT: &str = "user_script";

/// True if the server runs scripts, and refuses a command in one.
pub(super) fn is_in_script(error: &RedisError) -> bool {
    is_forbidden(error) && without_arguments(&error.to_string()).contains(IN_SCRIPT)
}

/// True if the server or a proxy refuses this command by its name.
pub(super) fn takes_no(command: &str, error: &RedisError) -> bool {
    let said = error.to_string();
    said.to_uppercase().contains(command) && !is_passing(&said)
}

/// True if the server took the `#!lua` line for a syntax error.
fn is_too_old_for_flags(error: &RedisError) -> bool {
    error
        .detail()
        .is_some_and(|detail| detail.contains("unexpected symbol near '#'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error line of a server.
    fn line(text: &str) -> RedisError {
        redis::parse_redis_value(format!("-{text}\r\n").as_bytes())
            .and_then(Value::extract_error)
            .unwrap_err()
    }

    /// As Redis, Valkey, Envoy, Codis and hosted services write it.
    #[test]
    fn refusal_of_scripts_is_known_in_any_words() {
        for said in [
            "ERR unknown command 'EVALSHA', with args beginning with: 'x' '1' 'user_script' ",
            "ERR unknown command `evalsha`",
            "ERR unknown command ' evalsha '",
            "ERR unknown command",
            "ERR unsupported command",
            "unsupported command 'EVALSHA'",
            "ERR command evalsha not support for your account",
            "ERR This command is not supported",
            "ERR handle request, command 'EVALSHA' is not allowed",
            "ERR Could not find scripting engine 'lua'",
            "ERR scripting is disabled",
            "NOPERM this user has no permissions to run the 'evalsha' command",
        ] {
            assert!(is_about_scripts(&line(said)), "{said}");
            assert!(!is_in_script(&line(said)), "{said}");
        }
        for said in [
            "OOM command not allowed when used memory > 'maxmemory'.",
            "MISCONF Commands that may modify the data set are not allowed",
            "LOADING Redis is loading the dataset in memory",
            "ERR upstream timeout for 'EVALSHA'",
            "MOVED 866 127.0.0.1:7000",
            "NOSCRIPT No matching script. Please use EVAL.",
        ] {
            assert!(!is_about_scripts(&line(said)), "{said}");
        }
    }

    #[test]
    fn refusal_of_a_command_in_a_script_is_not_one_of_the_script() {
        let place = "script: 104ae65debf45156ded1e8e613705534c8e62c17, on @user_script:1.";
        for said in [
            "ERR This Redis command is not allowed from script",
            "ERR Unknown Redis command called from script",
            "ERR The user executing the script can't run this command or subcommand",
            "ERR ACL failure in script: User x has no permissions to run the 'time' command",
        ] {
            let error = line(&format!("{said} {place}"));
            assert!(is_in_script(&error) && !is_about_scripts(&error), "{said}");
        }
    }

    #[test]
    fn script_begins_with_flags_and_contains_what_it_calls() {
        for source in &Scripts::default().sources[ACQUIRE_MANY..=INSPECT] {
            let (flagged, plain) = (&source.flagged.code, &source.plain.code);
            assert!(flagged.starts_with("#!lua"), "{flagged}");
            assert!(!plain.lines().any(|line| line.starts_with("#!")), "{plain}");
            assert!(plain.contains("local function each("), "{plain}");
            assert!(plain.contains("\nreturn each("), "{plain}");
            assert_ne!(source.flagged.sha, source.plain.sha);
        }
    }
}
