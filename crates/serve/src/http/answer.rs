//! Answers: documents, refusals, and the bodies of requests.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use leasehold::{Error, HolderView, Invalid, Lost, StoreError, Timeout};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::documents::{HolderFields, json, without_advice};

/// The longest body of a request, in bytes.
pub(crate) const LONGEST_BODY: usize = 64 * 1024;

/// The time limit for the body of a request.
const BODY: Duration = Duration::from_secs(10);

/// When a refused client may try again.
const AGAIN: HeaderValue = HeaderValue::from_static("1");

/// A document with a status.
pub(crate) fn answer(status: StatusCode, document: &impl Serialize) -> Response {
    answer_text(status, json(document))
}

/// A document that is text already.
pub(crate) fn answer_text(status: StatusCode, document: String) -> Response {
    let mut response = (status, document).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    no_store(headers);
    response
}

/// The answer is for this client and this moment, and is no page.
pub(crate) fn no_store(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// Why a request is refused, as the document `leasehold.error/1`. It says whether the lock was held, if that is known, and whether the same
/// request may succeed later.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    document: Box<ErrorDocument>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "schema", rename = "leasehold.error/1")]
struct ErrorDocument {
    error: &'static str,
    message: String,
    /// `None` if the server does not know.
    held: Option<bool>,
    may_retry: bool,
    #[serde(flatten)]
    more: More,
}

/// What only some errors have.
#[derive(Debug, Default, Serialize)]
#[serde(untagged)]
enum More {
    #[default]
    Nothing,
    /// The lock that is busy.
    Busy {
        lock: String,
        /// The lease that the session of this request has on it.
        #[serde(skip_serializing_if = "Option::is_none")]
        lease: Option<String>,
        #[serde(flatten)]
        holder: HolderFields,
    },
    Lost {
        lock: String,
        cause: String,
        fence: Option<u64>,
    },
    Store {
        may_have_taken_effect: bool,
    },
    Short {
        valid_for_ms: u64,
    },
}

impl Refusal {
    /// A refusal that says nothing of the lock.
    pub fn new(status: StatusCode, error: &'static str, message: impl Into<String>) -> Self {
        let document = ErrorDocument {
            error,
            message: message.into(),
            held: None,
            may_retry: false,
            more: More::Nothing,
        };
        Self {
            status,
            document: Box::new(document),
        }
    }

    /// The same request may succeed later.
    #[must_use]
    pub fn may_retry(mut self) -> Self {
        self.document.may_retry = true;
        self
    }

    fn held(mut self, held: bool) -> Self {
        self.document.held = Some(held);
        self
    }

    fn with(mut self, more: More) -> Self {
        self.document.more = more;
        self
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(crate) fn too_many(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many", message).may_retry()
    }

    /// The lock was busy at once.
    pub(crate) fn busy(lock: &str, holder: Option<&HolderView>) -> Self {
        let message = format!("{lock:?} is busy");
        let refusal = Self::new(StatusCode::CONFLICT, "busy", message).may_retry();
        refusal.with(More::Busy {
            lock: lock.to_owned(),
            lease: None,
            holder: HolderFields::of(holder),
        })
    }

    /// Says whether the session that asked has the busy lock itself: the answer that gave it may have been lost.
    pub(crate) fn for_session(mut self, lease_on: impl FnOnce(&str) -> Option<String>) -> Self {
        if let More::Busy { lock, lease, .. } = &mut self.document.more {
            *lease = lease_on(lock);
            self.document.held = Some(lease.is_some());
        }
        self
    }

    /// The lease is held, but not for as long as is needed. A renewal may help, if something renews it.
    pub(crate) fn short(valid_for_ms: u64, min_ms: u64, may_retry: bool) -> Self {
        let message =
            format!("the lease is valid for {valid_for_ms} ms, not for more than {min_ms} ms");
        let mut refusal = Self::new(StatusCode::CONFLICT, "short", message).held(true);
        refusal.document.may_retry = may_retry;
        refusal.with(More::Short { valid_for_ms })
    }
}

impl From<Timeout> for Refusal {
    fn from(timeout: Timeout) -> Self {
        // The holder may be another session of this server, so the text of the library would mislead.
        let message = format!(
            "{:?} was still busy after {:.1?}",
            timeout.name, timeout.waited
        );
        let refusal = Self::new(StatusCode::REQUEST_TIMEOUT, "timeout", message).may_retry();
        refusal.with(More::Busy {
            holder: HolderFields::of(timeout.holder.as_deref()),
            lease: None,
            lock: timeout.name,
        })
    }
}

impl From<Lost> for Refusal {
    fn from(lost: Lost) -> Self {
        let message = format!("{lost}; work done without the lease may have been unprotected");
        let refusal = Self::new(StatusCode::GONE, "lost", without_advice(&message));
        refusal.held(true).with(More::Lost {
            cause: without_advice(&lost.reason()),
            fence: lost.fence.map(leasehold::Fence::get),
            lock: lost.name,
        })
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let mut refusal = Self::new(status, "store", without_advice(&error.to_string()));
        refusal.document.may_retry = error.kind.is_transient();
        refusal.with(More::Store {
            may_have_taken_effect: error.may_have_taken_effect,
        })
    }
}

impl From<Invalid> for Refusal {
    fn from(invalid: Invalid) -> Self {
        Self::invalid(invalid.to_string())
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::Timeout(timeout) => timeout.into(),
            Error::Lost(lost) => lost.into(),
            Error::Store(error) => error.into(),
            Error::Invalid(invalid) => invalid.into(),
            other => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "unknown",
                other.to_string(),
            ),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = answer(self.status, &self.document);
        let is_later = self.status == StatusCode::SERVICE_UNAVAILABLE
            || self.status == StatusCode::TOO_MANY_REQUESTS;
        if is_later && self.document.may_retry {
            response.headers_mut().insert(RETRY_AFTER, AGAIN);
        }
        response
    }
}

/// For paths without a route.
pub(crate) async fn nothing(uri: Uri) -> Refusal {
    Refusal::not_found(format!("there is nothing at {:?}", uri.path()))
}

/// For methods that a path does not take.
pub(crate) async fn other_method(method: Method, uri: Uri) -> Refusal {
    let why = format!("{:?} does not take {method}", uri.path());
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "invalid", why)
}

/// The part of a path that names something.
pub(crate) struct Named(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let found = Path::<String>::from_request_parts(parts, state).await;
        let Path(name) = found.map_err(|error| Refusal::invalid(error.body_text()))?;
        Ok(Self(name))
    }
}

/// The body of a request: one JSON document. An empty body is that of a document without fields.
pub(crate) struct Document<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Document<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        let (head, body) = request.into_parts();
        let bytes = read(body).await?;
        if bytes.is_empty() {
            return parse(b"{}");
        }
        // A page of another origin can send other types without being asked first.
        let kind = head.headers.get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.split(';').next().map(str::trim) != Some("application/json") {
            let why = "the body must be JSON: send the header Content-Type: application/json";
            return Err(Refusal::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "invalid",
                why,
            ));
        }
        parse(&bytes)
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<Document<T>, Refusal> {
    // A list would be taken for the fields in their order.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Refusal::invalid(
            "the body must be a JSON object, such as {}",
        ));
    }
    let parsed = serde_json::from_slice(body).map(Document);
    parsed.map_err(|error| Refusal::invalid(format!("the body is not understood: {error}")))
}

async fn read(body: Body) -> Result<Vec<u8>, Refusal> {
    match tokio::time::timeout(BODY, to_bytes(body, LONGEST_BODY)).await {
        Ok(Ok(bytes)) => Ok(bytes.into()),
        Ok(Err(_)) => {
            let why = format!("the body was cut off, or is longer than {LONGEST_BODY} bytes");
            Err(Refusal::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "too_large",
                why,
            ))
        }
        Err(_) => {
            let why = format!("the body did not arrive within {BODY:?}");
            Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "slow", why))
        }
    }
}
