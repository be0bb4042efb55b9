//! The page of `leasehold ui`: files, a stream of what the store shows, and breaking a lock.
//!
//! # Invariants
//!
//! - **PG1** One watcher looks at the store, whatever the number of pages; without a page that listens, it asks nothing.
//! - **PG2** A page that listens has either the whole picture and all that followed, or it gets the whole picture again.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{
    AGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::future::BoxFuture;
use futures_util::stream;
use humantime::format_rfc3339_millis;
use leasehold::{Client, Clock, Error, Fence, Moment, Snapshot};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Mutex as AsyncMutex, Notify, broadcast};

use super::answer::{Document, Refusal, answer, answer_text};
use super::locks::{Asked, ShowLocks, known};
use super::sessions::closing;
use crate::changes::{ChangeDocument, Picture, Snapshots, StoreDocument, compare};
use crate::documents::{LockJson, json, millis, without_advice};

const INDEX: &str = include_str!("page/index.html");
const SCRIPT: &str = include_str!("page/script.js");
const STYLE: &str = include_str!("page/style.css");

/// The page runs the script and the style with these hashes, which a test computes, asks its own server, and does nothing else. No other page
/// may frame it.
const POLICY: &str = "default-src 'none'; \
     script-src 'sha256-f0YHw9s0feZ3gUSWHnn8SSSov2LnirCXTpailI0/SNA='; \
     style-src 'sha256-SYktwOvmdXEdnQmUf0FHT30DLWeR6VDf0MMWfMVG3DM='; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// How many looks a slow page may be behind, before it gets the whole picture again.
const BEHIND: usize = 16;

/// How long an examination of the store counts.
const FRESH: Duration = Duration::from_secs(60);

/// How often a stream says that it lives.
const ALIVE: Duration = Duration::from_secs(10);

/// By how much the rest of a lease may differ from what a page has counted down to, and by which part of it.
const DRIFT: (Duration, u32) = (Duration::from_secs(1), 8);

/// The name of the event of a look.
const LOOK: &str = "look";

/// The longest reason for a break, and the longest name of who breaks.
const LONGEST_WORDS: usize = 200;

/// The routes of the page, for the locks of one client.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use axum::Router;
/// use leasehold::Client;
/// use leasehold_serve::Page;
///
/// let client = Client::connect("redis://127.0.0.1/").await?;
/// let page = Page::new(&client, Duration::from_secs(1));
/// // Behind the access control of this service: the routes have none. The page is at /locks/ui/.
/// let service: Router = Router::new().nest("/locks", page.routes().merge(page.files()));
/// # let serve = async { drop(service) };
/// tokio::select! {
///     () = serve => {}
///     () = page.watch() => {}
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Page {
    watcher: Arc<Watcher>,
    audit: Option<Audit>,
    doctor: Option<Arc<Doctor>>,
}

/// Takes one line for each break.
type Audit = Arc<dyn Fn(&str) + Send + Sync>;

/// Examines the store.
struct Doctor {
    examine: Box<dyn Fn() -> BoxFuture<'static, Result<String, Error>> + Send + Sync>,
    clock: Clock,
    /// The last document. Locked while the store is examined, which is once for all pages.
    last: AsyncMutex<Option<(String, Moment)>>,
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let allows_break = self.audit.is_some();
        f.debug_struct("Page")
            .field("allows_break", &allows_break)
            .finish_non_exhaustive()
    }
}

impl Page {
    /// A page about the locks of this client, with a look at them in each interval.
    pub fn new(client: &Client, interval: Duration) -> Self {
        let watcher = Watcher {
            client: client.clone(),
            clock: Clock::system(),
            interval,
            known: Mutex::default(),
            told: broadcast::channel(BEHIND).0,
            wanted: Notify::new(),
        };
        Self {
            watcher: Arc::new(watcher),
            audit: None,
            doctor: None,
        }
    }

    /// A lock may be broken. `audit` gets one line for each: who, which lock, and why.
    #[must_use]
    pub fn allow_break(mut self, audit: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.audit = Some(Arc::new(audit));
        self
    }

    /// The state of the store is shown. `examine` returns it as a document, `leasehold.doctor/1`. It is called only while a page shows
    /// the document, once in a minute at most.
    #[must_use]
    pub fn examine_by<F>(mut self, examine: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<String, Error>> + Send + 'static,
    {
        self.doctor = Some(Arc::new(Doctor {
            examine: Box::new(move || Box::pin(examine())),
            clock: self.watcher.clock.clone(),
            last: AsyncMutex::default(),
        }));
        self
    }

    /// The page, at `/ui/`. It holds no secret.
    pub fn files(&self) -> Router {
        let page: Arc<str> = whole_page().into();
        let page = get(move || async move {
            let headers = [
                (CONTENT_TYPE, "text/html; charset=utf-8"),
                (CONTENT_SECURITY_POLICY, POLICY),
                (REFERRER_POLICY, "no-referrer"),
                (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            ];
            (headers, page.to_string())
        });
        Router::new().route("/ui/", page)
    }

    /// What the page asks for: `GET /api/v1/looks` is its stream, `GET /api/v1/store` the state of the store, and `POST /api/v1/break` breaks
    /// a lock. For programs: `GET /api/v1/locks` is `leasehold.inspect/1`, and `GET /api/v1/events` a stream of `leasehold.watch/1`.
    pub fn routes(&self) -> Router {
        Router::new()
            .route("/api/v1/looks", get(looks))
            .route("/api/v1/locks", get(locks))
            .route("/api/v1/events", get(events))
            .route("/api/v1/store", get(store))
            .route("/api/v1/break", post(break_lock))
            .with_state(self.clone())
    }

    /// Watches the store while pages listen. Does not end.
    pub async fn watch(&self) {
        self.watcher.watch().await;
    }

    /// Ends the streams of all pages, and lets no other begin.
    pub fn close(&self) {
        self.watcher.known().ended = true;
        // Fails if no page listens.
        let _told = self.watcher.told.send(Told::End);
    }
}

/// The page in one file.
fn whole_page() -> String {
    let page = INDEX.replace("{style}", STYLE);
    page.replace("{script}", SCRIPT)
}

/// Looks at the store for all pages.
struct Watcher {
    client: Client,
    clock: Clock,
    interval: Duration,
    known: Mutex<Known>,
    told: broadcast::Sender<Told>,
    /// A page has begun to listen.
    wanted: Notify,
}

#[derive(Clone)]
enum Told {
    Look(Arc<ToldLook>),
    End,
}

/// One look, as each kind of stream has it.
struct ToldLook {
    page: String,
    /// Documents `leasehold.watch/1`.
    events: Vec<String>,
}

/// What is sent over a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamKind {
    /// Looks, for the page.
    Looks,
    /// Changes, for programs.
    Events,
}

/// An event of a stream, with its name if it has one.
type Sent = (Option<&'static str>, String);

/// What the pages know.
#[derive(Default)]
struct Known {
    picture: Option<(Arc<Picture>, Moment)>,
    /// When each lock was last sent, and how it was.
    sent: BTreeMap<String, (Snapshot, Moment)>,
    /// Why the store does not answer.
    error: Option<String>,
    /// No page may listen any more.
    ended: bool,
}

/// One look, as a page hears it.
#[derive(Serialize)]
struct LookDocument<'a> {
    time: String,
    /// How old the look is.
    age_ms: u64,
    /// All locks are in `locks`, and no others are known.
    full: bool,
    locks: Vec<LockJson<'a>>,
    gone: Vec<&'a str>,
    changes: Vec<ChangeDocument<'a>>,
    /// Names of the index that this user may not look at.
    hidden: usize,
    /// Locks whose state is unknown.
    unknown: BTreeMap<&'a str, String>,
    /// Why the store does not answer.
    error: Option<&'a str>,
}

/// The first event of a stream.
#[derive(Serialize)]
struct Hello<'a> {
    store: &'a str,
    interval_ms: u64,
    may_break: bool,
}

impl Watcher {
    async fn watch(&self) {
        loop {
            if self.told.receiver_count() == 0 {
                // (PG1)
                self.forget();
                self.wanted.notified().await;
                continue;
            }
            let last = self.known().picture.clone().map(|(picture, _)| picture);
            let taken = Picture::take(&self.client, |_| true, last.as_deref()).await;
            self.tell(last.as_deref(), taken);
            tokio::time::sleep(self.interval).await;
        }
    }

    /// Forgets what the pages knew, since there is none.
    fn forget(&self) {
        let mut known = self.known();
        *known = Known {
            ended: known.ended,
            ..Known::default()
        };
    }

    /// Tells all pages what this look has shown.
    fn tell(&self, last: Option<&Picture>, taken: Result<Picture, Error>) {
        let (now, time) = (self.clock.now(), self.time());
        // Locked until the pages are told, so that one that begins to listen misses nothing (PG2).
        let mut known = self.known();
        let was_away = known.error.is_some();
        let look = match taken {
            Ok(picture) => {
                let none = Snapshots::new();
                let before = last.map_or(&none, |last| &last.locks);
                let changes = compare(before, &picture.locks);
                let changes = changes.iter();
                let changes: Vec<_> = changes
                    .map(|change| ChangeDocument::of(change, last.is_none(), &time))
                    .collect();
                let answered = was_away.then(|| json(&StoreDocument::of(None, &time)));
                let events = answered.into_iter().chain(changes.iter().map(json));
                let events = events.collect();
                let is_due = |name: &String, seen: &Snapshot| {
                    let sent = known.sent.get(name);
                    sent.is_none_or(|(sent, at)| !is_as_told(sent, seen, now.since(*at)))
                };
                let due = picture.locks.iter();
                let due: Vec<_> = due.filter(|(name, seen)| is_due(name, seen)).collect();
                let gone = before
                    .keys()
                    .filter(|name| !picture.locks.contains_key(*name));
                let page = json(&LookDocument {
                    changes,
                    locks: (due.iter().map(|(name, seen)| LockJson::of(name, seen))).collect(),
                    gone: gone.map(String::as_str).collect(),
                    full: last.is_none(),
                    ..self.document(&picture, None)
                });
                let due = due.into_iter();
                let due: Vec<_> = due
                    .map(|(name, seen)| (name.clone(), seen.clone()))
                    .collect();
                known
                    .sent
                    .retain(|name, _| picture.locks.contains_key(name));
                known
                    .sent
                    .extend(due.into_iter().map(|(name, seen)| (name, (seen, now))));
                (known.picture, known.error) = (Some((Arc::new(picture), now)), None);
                ToldLook { page, events }
            }
            Err(error) => {
                let error = without_advice(&error.to_string());
                let unanswered = || json(&StoreDocument::of(Some(&error), &time));
                let look = ToldLook {
                    page: json(&self.document(&Picture::default(), Some(&error))),
                    events: (!was_away).then(unanswered).into_iter().collect(),
                };
                known.error = Some(error);
                look
            }
        };
        // Fails if no page listens any more.
        let _told = self.told.send(Told::Look(look.into()));
    }

    /// Begins to listen. Returns the events of the last look, if there was one. `None`: the server ends.
    fn listen(&self, kind: StreamKind) -> Option<(Vec<Sent>, broadcast::Receiver<Told>)> {
        let known = self.known();
        if known.ended {
            return None;
        }
        let told = self.told.subscribe();
        self.wanted.notify_one();
        let first = match kind {
            StreamKind::Looks => {
                let whole = self.whole(&known).into_iter();
                whole.map(|whole| (Some(LOOK), whole)).collect()
            }
            StreamKind::Events => self.initial(&known),
        };
        Some((first, told))
    }

    /// The whole picture of the last look.
    fn whole(&self, known: &Known) -> Option<String> {
        let (picture, at) = known.picture.as_ref()?;
        let locks = picture.locks.iter();
        Some(json(&LookDocument {
            full: true,
            age_ms: millis(self.clock.now().since(*at)),
            locks: locks.map(|(name, seen)| LockJson::of(name, seen)).collect(),
            ..self.document(picture, known.error.as_deref())
        }))
    }

    /// All locks of the last look, as events, and whether the store is away.
    fn initial(&self, known: &Known) -> Vec<Sent> {
        let (time, none) = (self.time(), Snapshots::new());
        let locks = known.picture.as_ref().map(|(picture, _)| &picture.locks);
        let changes = compare(&none, locks.unwrap_or(&none));
        let changes = changes.iter();
        let locks = changes.map(|change| json(&ChangeDocument::of(change, true, &time)));
        let away = known.error.as_deref();
        let away = away.map(|error| json(&StoreDocument::of(Some(error), &time)));
        locks.chain(away).map(|text| (None, text)).collect()
    }

    fn document<'a>(&self, picture: &'a Picture, error: Option<&'a str>) -> LookDocument<'a> {
        let unknown = picture.unknown.iter();
        LookDocument {
            time: self.time(),
            age_ms: 0,
            full: false,
            locks: Vec::new(),
            gone: Vec::new(),
            changes: Vec::new(),
            hidden: picture.hidden,
            unknown: unknown
                .map(|(name, error)| (name.as_str(), error.to_string()))
                .collect(),
            error,
        }
    }

    fn time(&self) -> String {
        format_rfc3339_millis(self.clock.wall()).to_string()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // A panic leaves an older picture, which is sent again.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a page that was told of a lock so long ago shows it as it is.
fn is_as_told(told: &Snapshot, now: &Snapshot, ago: Duration) -> bool {
    let ends = |left: Option<Duration>, ago| left.map(|left| left.saturating_sub(ago));
    let (most, part) = DRIFT;
    let is_near = |told: Option<Duration>, now: Option<Duration>| match (told, now) {
        (Some(told), Some(now)) => told.abs_diff(now) <= most.min(now / part),
        (told, now) => told == now,
    };
    let same_holders = told.holders().count() == now.holders().count()
        && told.holders().zip(now.holders()).all(|(told, now)| {
            told.who == now.who
                && (told.fence, told.mode, told.slot) == (now.fence, now.mode, now.slot)
                && is_near(ends(told.expires_in, ago), now.expires_in)
        });
    let same_queue = told.queue.len() == now.queue.len()
        && told.queue.iter().zip(&now.queue).all(|(told, now)| {
            told.owner == now.owner && told.seen_for.is_zero() == now.seen_for.is_zero()
        });
    same_holders && same_queue && told.omitted == now.omitted
}

async fn locks(State(page): State<Page>, asked: Asked<ShowLocks>) -> Result<Response, Refusal> {
    known(&page.watcher.client, asked).await
}

/// The state of the store, with its age in a header.
async fn store(State(page): State<Page>) -> Result<Response, Refusal> {
    let Some(doctor) = &page.doctor else {
        return Err(Refusal::not_found("this server does not examine its store"));
    };
    let mut last = doctor.last.lock().await;
    let age = |at: Moment| doctor.clock.now().since(at);
    let known = last.take().filter(|(_, at)| age(*at) < FRESH);
    let (document, at) = match known {
        Some(known) => known,
        None => ((doctor.examine)().await?, doctor.clock.now()),
    };
    let mut response = answer_text(StatusCode::OK, document.clone());
    response.headers_mut().insert(AGE, age(at).as_secs().into());
    *last = Some((document, at));
    Ok(response)
}

async fn looks(State(page): State<Page>) -> Response {
    let hello = json(&Hello {
        store: page.watcher.client.store(),
        interval_ms: millis(page.watcher.interval),
        may_break: page.audit.is_some(),
    });
    streamed(
        page.watcher,
        StreamKind::Looks,
        Some((Some("hello"), hello)),
    )
}

async fn events(State(page): State<Page>) -> Response {
    streamed(page.watcher, StreamKind::Events, None)
}

/// A stream that begins with this event.
fn streamed(watcher: Arc<Watcher>, kind: StreamKind, first: Option<Sent>) -> Response {
    let Some((whole, told)) = watcher.listen(kind) else {
        return closing().into_response();
    };
    let next: VecDeque<Sent> = first.into_iter().chain(whole).collect();
    let events = stream::unfold((next, told, watcher), move |mut state| async move {
        let (next, told, watcher) = &mut state;
        loop {
            if let Some((name, text)) = next.pop_front() {
                let event = name.map_or_else(Event::default, |name| Event::default().event(name));
                let event = event.data(text.trim_end());
                return Some((Ok::<_, Infallible>(event), state));
            }
            match told.recv().await {
                Ok(Told::Look(look)) if kind == StreamKind::Looks => {
                    next.push_back((Some(LOOK), look.page.clone()));
                }
                Ok(Told::Look(look)) => {
                    next.extend(look.events.iter().map(|event| (None, event.clone())));
                }
                Ok(Told::End) | Err(RecvError::Closed) => return None,
                // (PG2)
                Err(RecvError::Lagged(_)) => {
                    let (whole, again) = watcher.listen(kind)?;
                    *told = again;
                    next.extend(whole);
                }
            }
        }
    });
    let alive = KeepAlive::new().interval(ALIVE);
    Sse::new(events).keep_alive(alive).into_response()
}

/// A lock to be broken: who does it, and why.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BreakRequest {
    name: String,
    fence: u64,
    who: String,
    reason: String,
}

#[derive(Serialize)]
struct BreakDocument<'a> {
    name: &'a str,
    fence: u64,
    broken: bool,
}

async fn break_lock(
    State(page): State<Page>,
    Document(request): Document<BreakRequest>,
) -> Result<Response, Refusal> {
    let Some(audit) = &page.audit else {
        let why = "this server breaks no locks: start it with --allow-break";
        return Err(Refusal::new(StatusCode::FORBIDDEN, "forbidden", why));
    };
    let BreakRequest {
        name,
        fence,
        who,
        reason,
    } = &request;
    for (what, words) in [("who", who), ("reason", reason)] {
        if words.trim().is_empty() || words.len() > LONGEST_WORDS {
            let why = format!("{what}: 1 to {LONGEST_WORDS} bytes, for the audit line");
            return Err(Refusal::invalid(why));
        }
    }
    let broken = page
        .watcher
        .client
        .break_lock(name, Fence::new(*fence))
        .await;
    let outcome = match &broken {
        Ok(true) => "broken".to_owned(),
        Ok(false) => "not broken: the holder has another fence".to_owned(),
        Err(error) => error.to_string(),
    };
    audit(&format!(
        "break {name:?}, fence {fence}, by {who:?}, because {reason:?}: {outcome}"
    ));
    let document = BreakDocument {
        name,
        fence: *fence,
        broken: broken?,
    };
    Ok(answer(StatusCode::OK, &document))
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    use futures_util::StreamExt;
    use leasehold::{HolderIdentity, HolderView};
    use ring::digest::{SHA256, digest};

    use super::*;

    #[test]
    fn the_policy_has_the_hashes_of_script_and_style() {
        let page = whole_page();
        for (tag, text) in [("script", SCRIPT), ("style", STYLE)] {
            let hash = BASE64_STANDARD.encode(digest(&SHA256, text.as_bytes()));
            let source = format!("{tag}-src 'sha256-{hash}';");
            assert!(POLICY.contains(&source), "write into POLICY: {source}");
            let element = format!("<{tag}>{text}</{tag}>");
            assert_eq!(page.matches(&element).count(), 1, "{tag}");
            assert!(!text.contains(&format!("</{tag}")), "{tag}");
        }
    }

    /// A lock of which so much is left.
    fn left(rest: Duration) -> Snapshot {
        let foreign = HolderIdentity::Foreign {
            kind: "string".into(),
            value: Vec::new(),
        };
        let holder = HolderView::new(foreign, None, None, Some(rest));
        Snapshot::new(Some(holder), Vec::new())
    }

    #[test]
    fn a_renewal_is_told_however_short_the_lease_is() {
        for ttl in [20, 100, 1_000, 30_000].map(Duration::from_millis) {
            let third = ttl / 3;
            let counted_down = left(third * 2);
            assert!(is_as_told(&left(ttl), &counted_down, third), "{ttl:?}");
            assert!(!is_as_told(&left(ttl), &left(ttl), third), "{ttl:?}");
        }
    }

    #[tokio::test]
    async fn a_page_that_is_far_behind_begins_again() -> Result<(), Error> {
        let client = Client::embedded()?;
        let page = Page::new(&client, Duration::from_secs(1));
        let picture = |name: &str| Picture {
            locks: [(name.to_owned(), left(Duration::from_secs(30)))].into(),
            ..Picture::default()
        };
        page.watcher.tell(None, Ok(picture("old")));
        let stream = looks(State(page.clone())).await.into_body();
        let mut stream = stream.into_data_stream();
        for _ in 0..=BEHIND {
            page.watcher.tell(Some(&picture("old")), Ok(picture("new")));
        }
        let told: Vec<_> = stream.by_ref().take(3).collect().await;
        let text = |at: usize| String::from_utf8_lossy(told[at].as_ref().expect("an event"));
        let (hello, old, new) = (text(0), text(1), text(2));
        assert!(hello.starts_with("event: hello\ndata: {"), "{hello}");
        for (look, name) in [(old, "old"), (new, "new")] {
            let is_whole =
                look.contains(&format!("\"full\":true,\"locks\":[{{\"name\":\"{name}\""));
            assert!(look.starts_with("event: look\n") && is_whole, "{look}");
        }
        // Its end is seen, also by a page that was far behind.
        for _ in 0..=BEHIND {
            page.watcher.tell(None, Ok(picture("new")));
        }
        page.close();
        for _ in 0..=BEHIND {
            page.watcher.tell(None, Ok(picture("new")));
        }
        assert!(stream.next().await.is_none());
        Ok(())
    }
}
