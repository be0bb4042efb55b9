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
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream;
use humantime::format_rfc3339_millis;
use leasehold::{Client, Clock, Error, Fence, Moment, Snapshot};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, broadcast};

use super::answer::{Document, Refusal, answer};
use crate::changes::{ChangeDocument, Picture, Snapshots, compare};
use crate::documents::{LockJson, json, millis, without_advice};

const INDEX: &str = include_str!("page/index.html");
const SCRIPT: &str = include_str!("page/script.js");
const STYLE: &str = include_str!("page/style.css");

/// The page loads its own files and asks its own server, and nothing else. No other page may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// How many looks a slow page may be behind, before it gets the whole picture again.
const BEHIND: usize = 16;

/// How often a stream says that it lives.
const ALIVE: Duration = Duration::from_secs(10);

/// By how much a deadline may differ from the one that a page has counted down.
const DRIFT: Duration = Duration::from_secs(1);

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
}

/// Takes one line for each break.
type Audit = Arc<dyn Fn(&str) + Send + Sync>;

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
        }
    }

    /// A lock may be broken. `audit` gets one line for each: who, which lock, and why.
    #[must_use]
    pub fn allow_break(mut self, audit: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.audit = Some(Arc::new(audit));
        self
    }

    /// The files of the page. They hold no secret.
    pub fn files(&self) -> Router {
        let file = |text: &'static str, kind: &'static str| {
            get(move || async move {
                let headers = [
                    (CONTENT_TYPE, kind),
                    (CONTENT_SECURITY_POLICY, POLICY),
                    (REFERRER_POLICY, "no-referrer"),
                ];
                (headers, text)
            })
        };
        Router::new()
            .route("/ui/", file(INDEX, "text/html; charset=utf-8"))
            .route(
                "/ui/script.js",
                file(SCRIPT, "text/javascript; charset=utf-8"),
            )
            .route("/ui/style.css", file(STYLE, "text/css; charset=utf-8"))
    }

    /// What the page asks for.
    pub fn routes(&self) -> Router {
        Router::new()
            .route("/api/v1/events", get(events))
            .route("/api/v1/break", post(break_lock))
            .with_state(self.clone())
    }

    /// Watches the store while pages listen. Does not end.
    pub async fn watch(&self) {
        self.watcher.watch().await;
    }

    /// Ends the streams of all pages.
    pub fn close(&self) {
        // Fails if no page listens.
        let _told = self.watcher.told.send(Told::End);
    }
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
    Look(Arc<str>),
    End,
}

/// What the pages know.
#[derive(Default)]
struct Known {
    picture: Option<(Arc<Picture>, Moment)>,
    /// When each lock was last sent, and how it was.
    sent: BTreeMap<String, (Snapshot, Moment)>,
    /// Why the store does not answer.
    error: Option<String>,
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
                *self.known() = Known::default();
                self.wanted.notified().await;
                continue;
            }
            let last = self.known().picture.clone().map(|(picture, _)| picture);
            let taken = Picture::take(&self.client, |_| true, last.as_deref()).await;
            self.tell(last.as_deref(), taken);
            tokio::time::sleep(self.interval).await;
        }
    }

    /// Tells all pages what this look has shown.
    fn tell(&self, last: Option<&Picture>, taken: Result<Picture, Error>) {
        let (now, time) = (self.clock.now(), self.time());
        // Locked until the pages are told, so that one that begins to listen misses nothing (PG2).
        let mut known = self.known();
        let text = match taken {
            Ok(picture) => {
                let none = Snapshots::new();
                let before = last.map_or(&none, |last| &last.locks);
                let changes = compare(before, &picture.locks);
                let document = |change| ChangeDocument::of(change, last.is_none(), &time);
                let is_due = |name: &String, seen: &Snapshot| {
                    let sent = known.sent.get(name);
                    sent.is_none_or(|(sent, at)| !is_as_told(sent, seen, now.since(*at)))
                };
                let due = picture.locks.iter();
                let due: Vec<_> = due.filter(|(name, seen)| is_due(name, seen)).collect();
                let gone = before
                    .keys()
                    .filter(|name| !picture.locks.contains_key(*name));
                let look = LookDocument {
                    changes: changes.iter().map(document).collect(),
                    locks: (due.iter().map(|(name, seen)| LockJson::of(name, seen))).collect(),
                    gone: gone.map(String::as_str).collect(),
                    full: last.is_none(),
                    ..self.document(&picture, None)
                };
                let text = json(&look);
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
                text
            }
            Err(error) => {
                known.error = Some(without_advice(&error.to_string()));
                json(&self.document(&Picture::default(), known.error.as_deref()))
            }
        };
        // Fails if no page listens any more.
        let _told = self.told.send(Told::Look(text.into()));
    }

    /// Begins to listen. Returns the whole picture, if there is one.
    fn listen(&self) -> (Option<String>, broadcast::Receiver<Told>) {
        let known = self.known();
        let told = self.told.subscribe();
        self.wanted.notify_one();
        (self.whole(&known), told)
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
    let is_near = |told: Option<Duration>, now: Option<Duration>| match (told, now) {
        (Some(told), Some(now)) => told.abs_diff(now) <= DRIFT,
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

async fn events(State(page): State<Page>) -> Response {
    let hello = json(&Hello {
        store: page.watcher.client.store(),
        interval_ms: millis(page.watcher.interval),
        may_break: page.audit.is_some(),
    });
    let (whole, told) = page.watcher.listen();
    let mut first = VecDeque::from([("hello", hello)]);
    first.extend(whole.map(|whole| ("look", whole)));
    let events = stream::unfold(
        (first, told, page),
        |(mut next, mut told, page)| async move {
            loop {
                if let Some((event, text)) = next.pop_front() {
                    let event = Event::default().event(event).data(text.trim_end());
                    return Some((Ok::<_, Infallible>(event), (next, told, page)));
                }
                match told.recv().await {
                    Ok(Told::Look(text)) => next.push_back(("look", text.to_string())),
                    Ok(Told::End) | Err(RecvError::Closed) => return None,
                    // (PG2)
                    Err(RecvError::Lagged(_)) => {
                        let (whole, again) = page.watcher.listen();
                        told = again;
                        next.extend(whole.map(|whole| ("look", whole)));
                    }
                }
            }
        },
    );
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
