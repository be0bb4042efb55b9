//! What guards a server. Each request passes it before any route.
//!
//! A page of any site can make the browser of its reader send requests to a server on the reader's host. So the guard asks for a token that no
//! page knows, refuses the names of other hosts (a name that a site lets point to 127.0.0.1), and refuses pages of other origins.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, CONNECTION, HOST, ORIGIN,
    VARY, WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use leasehold::{Clock, Moment};
use metrics::counter;
use subtle::ConstantTimeEq;

use super::answer::{Refusal, no_store};

/// The shortest token that is accepted.
const SHORTEST: usize = 32;

/// The secret that a client sends in the header `Authorization: Bearer TOKEN`.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl Token {
    /// 256 random bits.
    ///
    /// # Errors
    /// The text of the system, which has no random numbers.
    pub fn fresh() -> Result<Self, String> {
        Ok(Self((random()? + &random()?).into()))
    }

    /// A token that somebody chose: at least 32 visible ASCII characters.
    ///
    /// # Errors
    /// Why it is refused, without the text.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.len() < SHORTEST || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "a token has at least {SHORTEST} visible ASCII characters"
            ));
        }
        Ok(Self(text.into()))
    }

    /// The secret.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Compares in a time that does not depend on the place of the first difference.
    fn is(&self, other: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(other).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// 128 random bits, as hexadecimal digits.
pub(crate) fn random() -> Result<String, String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| error.to_string())?;
    Ok(format!("{:032x}", u128::from_ne_bytes(random)))
}

/// The rules of a server: who may send requests, under which host names, from pages of which origins, and how many.
#[derive(Debug)]
pub struct Guard {
    token: Option<Token>,
    hosts: Vec<String>,
    origins: Vec<String>,
    rate: Rate,
    /// For requests that need no token, so that they take nothing from the clients of this server.
    open_rate: Rate,
}

impl Guard {
    /// A guard that asks for this token; without one, whoever can connect may send requests. It takes the host names `localhost` and IP
    /// addresses, and up to 10,000 requests a second.
    pub fn new(token: Option<Token>) -> Self {
        Self {
            token,
            hosts: vec!["localhost".to_owned()],
            origins: Vec::new(),
            rate: Rate::new(10_000),
            open_rate: Rate::new(10_000),
        }
    }

    /// Takes requests to these host names too, and from pages of these origins, such as `https://locks.example`.
    ///
    /// # Errors
    /// A host name or an origin that no request can have.
    pub fn allow(mut self, hosts: &[String], origins: &[String]) -> Result<Self, String> {
        for host in hosts {
            if host.is_empty() || host.contains(['/', ':', '@']) {
                return Err(format!(
                    "{host:?} is no host name: write it without scheme, port and path"
                ));
            }
            self.hosts.push(host.to_ascii_lowercase());
        }
        for origin in origins {
            let authority = origin
                .split_once("://")
                .map_or("", |(_, authority)| authority);
            let is_plain = !authority.is_empty() && !authority.contains(['/', '?', '#', '@']);
            if !is_plain || *origin != origin.to_ascii_lowercase() {
                return Err(format!(
                    "{origin:?} is no origin: write it as a browser does, such as https://locks.example"
                ));
            }
            self.origins.push(origin.clone());
        }
        Ok(self)
    }

    /// Takes at most so many requests a second.
    #[must_use]
    pub fn rate(mut self, most: u32) -> Self {
        self.rate = Rate::new(most);
        self.open_rate = Rate::new(most);
        self
    }

    /// These routes behind all rules.
    pub(crate) fn closed(self: &Arc<Self>, routes: Router) -> Router {
        routes.layer(from_fn_with_state((self.clone(), true), check))
    }

    /// These routes behind all rules but the token: a page must be loaded before it can send a header.
    pub(crate) fn open(self: &Arc<Self>, routes: Router) -> Router {
        routes.layer(from_fn_with_state((self.clone(), false), check))
    }

    fn admit(&self, headers: &HeaderMap, asks_for_token: bool) -> Result<(), Refusal> {
        let host = one(headers, HOST)?;
        let Some(host) = host else {
            return Err(Refusal::invalid("the header Host is missing"));
        };
        if !self.is_host(host) {
            let why = format!(
                "the host {host:?} is not on the list of this server: add it by --allow-host, or use an IP address"
            );
            return Err(Refusal::new(
                StatusCode::MISDIRECTED_REQUEST,
                "forbidden",
                why,
            ));
        }
        if let Some(origin) = one(headers, ORIGIN)?
            && !self.is_origin(origin, host)
        {
            let why = format!("pages of {origin:?} may not send requests here: --allow-origin");
            return Err(Refusal::new(StatusCode::FORBIDDEN, "forbidden", why));
        }
        if let Some(token) = &self.token
            && asks_for_token
            && !is_borne(token, headers)?
        {
            let why = "send the header Authorization: Bearer TOKEN, with the token of this server";
            return Err(Refusal::new(StatusCode::UNAUTHORIZED, "unauthorized", why));
        }
        // At last: requests that are refused for another reason take nothing from the clients of this server.
        let rate = if asks_for_token {
            &self.rate
        } else {
            &self.open_rate
        };
        if !rate.admits() {
            let why = format!("more than {} requests a second", rate.most);
            return Err(Refusal::too_many(why));
        }
        Ok(())
    }

    /// The origin of the page that sends the request, if it is on the list.
    fn listed<'a>(&self, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        let is_listed = self.origins.iter().any(|known| origin == known.as_str());
        is_listed.then_some(origin)
    }

    /// An address is no name that a site could let point here.
    fn is_host(&self, host: &str) -> bool {
        let name = name_of(host).to_ascii_lowercase();
        let address = name.trim_start_matches('[').trim_end_matches(']');
        address.parse::<IpAddr>().is_ok() || self.hosts.contains(&name)
    }

    fn is_origin(&self, origin: &str, host: &str) -> bool {
        let authority = origin.split_once("://").map(|(_, authority)| authority);
        let is_own = authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host));
        is_own || self.origins.iter().any(|known| known == origin)
    }
}

/// A host without its port.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// The only value of a header. Two of them could be read differently by a proxy.
fn one(headers: &HeaderMap, name: axum::http::HeaderName) -> Result<Option<&str>, Refusal> {
    let shown = name.to_string();
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Refusal::invalid(format!(
            "the header {shown} is there twice"
        )));
    }
    let text = first.map(HeaderValue::to_str).transpose();
    text.map_err(|_| Refusal::invalid(format!("the header {shown} is no text")))
}

fn is_borne(token: &Token, headers: &HeaderMap) -> Result<bool, Refusal> {
    let given = one(headers, AUTHORIZATION)?.and_then(|value| value.split_once(' '));
    Ok(given.is_some_and(|(scheme, given)| {
        scheme.eq_ignore_ascii_case("bearer") && token.is(given.trim().as_bytes())
    }))
}

async fn check(
    State((guard, asks_for_token)): State<(Arc<Guard>, bool)>,
    request: Request,
    next: Next,
) -> Response {
    let origin = guard.listed(request.headers()).cloned();
    // A browser asks so before it sends the header with the token.
    let is_preflight = origin.is_some()
        && request.method() == Method::OPTIONS
        && request
            .headers()
            .contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let admitted = guard.admit(request.headers(), asks_for_token && !is_preflight);
    let mut response = match admitted.and_then(|()| is_whole(&request)) {
        Ok(()) if is_preflight => preflight(),
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            let mut response = refusal.into_response();
            // Its body is not read.
            let headers = response.headers_mut();
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
            response
        }
    };
    if response.status() == StatusCode::UNAUTHORIZED {
        let asks = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, asks);
    }
    no_store(response.headers_mut());
    if !guard.origins.is_empty() {
        let of = HeaderValue::from_static("origin");
        response.headers_mut().insert(VARY, of);
    }
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    let status = response.status().as_str().to_owned();
    counter!("leasehold_serve_requests_total", "status" => status).increment(1);
    response
}

/// While a body is not read to its end, the server does not see that the client closes the connection of a stream.
fn is_whole(request: &Request) -> Result<(), Refusal> {
    if request.method() == Method::GET && !request.body().is_end_stream() {
        return Err(Refusal::invalid("a GET has no body"));
    }
    Ok(())
}

/// The permission for a page to send requests, for ten minutes.
fn preflight() -> Response {
    let may = [
        (ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, DELETE"),
        (ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type"),
        (ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, may).into_response()
}

/// A limit of requests a second, and as many at once.
#[derive(Debug)]
struct Rate {
    most: u32,
    clock: Clock,
    /// How many more are admitted, and since when.
    left: Mutex<(f64, Moment)>,
}

impl Rate {
    fn new(most: u32) -> Self {
        let clock = Clock::system();
        Self {
            most,
            left: Mutex::new((most.into(), clock.now())),
            clock,
        }
    }

    fn admits(&self) -> bool {
        let now = self.clock.now();
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let most = f64::from(self.most);
        let more = now.since(left.1).as_secs_f64() * most;
        *left = ((left.0 + more).min(most), now);
        if left.0 < 1.0 {
            return false;
        }
        left.0 -= 1.0;
        true
    }
}
