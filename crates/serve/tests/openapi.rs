//! `docs/reference/openapi.json` has the routes of the sources, and the answers of the router have its form.

#![allow(clippy::unwrap_used, reason = "the functions here are parts of tests")]

use std::collections::{BTreeMap, BTreeSet};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::http::header::CONTENT_TYPE;
use futures_util::StreamExt;
use leasehold::{Client, Fence};
use leasehold_serve::{Guard, LeaseApi, Server};
use serde_json::{Value, json};
use tower::ServiceExt;

const PAGE: &str = include_str!("../../../docs/reference/openapi.json");

/// The files with routes.
const SOURCES: [&str; 5] = [
    include_str!("../src/http/leases.rs"),
    include_str!("../src/http/tokens.rs"),
    include_str!("../src/http/locks.rs"),
    include_str!("../src/http/metrics.rs"),
    include_str!("../src/http/server.rs"),
];

/// The methods that a path takes, by the names of the functions that make routes.
const METHODS: [&str; 5] = ["get", "post", "delete", "put", "patch"];

fn page() -> Value {
    serde_json::from_str(PAGE).unwrap()
}

#[test]
fn the_page_has_the_routes_of_the_sources() {
    let mut routes = BTreeSet::new();
    let ends = [".with_state", ".merge", "}", ";"];
    for text in SOURCES
        .iter()
        .flat_map(|source| source.split(".route(").skip(1))
    {
        let (path, handlers) = text.split_once('"').unwrap().1.split_once('"').unwrap();
        let end = ends.iter().filter_map(|end| handlers.find(end)).min();
        let handlers = &handlers[..end.unwrap_or(handlers.len())];
        let words = handlers.split(|c: char| !c.is_alphanumeric() && c != '_');
        let methods = words.filter(|word| METHODS.contains(word));
        let path = path.replace("{*", "{");
        routes.extend(methods.map(|method| (path.clone(), method.to_owned())));
    }
    // The example in a comment.
    let others = ["/healthz", "/metrics"];
    routes.retain(|(path, _)| path.starts_with("/v1/") || others.contains(&path.as_str()));
    let page = page();
    let mut documented = BTreeSet::new();
    for (path, operations) in page["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            documented.insert((path.clone(), method.clone()));
        }
    }
    assert!(documented.len() > 10, "{documented:?}");
    assert_eq!(documented, routes);
}

/// A service, what the page says, and which of its fields were seen.
struct Checked {
    client: Client,
    leases: LeaseApi,
    service: Router,
    page: Value,
    seen: BTreeMap<String, BTreeSet<String>>,
}

impl Checked {
    fn new() -> Self {
        let client = Client::embedded().unwrap();
        let leases = LeaseApi::new(&client);
        Self {
            service: Server::new(Guard::new(None))
                .mount(leases.routes())
                .router(),
            leases,
            client,
            page: page(),
            seen: BTreeMap::new(),
        }
    }

    /// Sends a request to a route of the page, with these words in place of its parameters. The answer has this status, which the page
    /// names, and the form that it says.
    async fn ask(
        &mut self,
        operation: &str,
        parts: &[&str],
        query: &str,
        body: Value,
        status: u16,
    ) -> Value {
        let (route, method) = operation.split_once(' ').map(|(m, r)| (r, m)).unwrap();
        let described = self.page["paths"][route][method.to_lowercase()].clone();
        assert!(described.is_object(), "{operation}");
        let mut parts = parts.iter();
        let path = route.split('/').map(|part| match part.strip_prefix('{') {
            Some(_) => parts.next().expect("a part"),
            None => part,
        });
        let path = path.collect::<Vec<_>>().join("/") + query;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost");
        let content = if body.is_null() {
            Body::empty()
        } else {
            let form = described["requestBody"]["content"]["application/json"]["schema"].clone();
            self.fits(&form, &body, "the request");
            request = request.header(CONTENT_TYPE, "application/json");
            Body::from(body.to_string())
        };
        let request = request.body(content).unwrap();
        let answer = self.service.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), status, "{operation}");
        let described = self.resolved(&described["responses"][status.to_string()]);
        let form = described["content"]["application/json"]["schema"].clone();
        assert!(
            form.is_object(),
            "{operation}: the page does not name {status}"
        );
        let text = axum::body::to_bytes(answer.into_body(), usize::MAX)
            .await
            .unwrap();
        let document: Value = serde_json::from_slice(&text).unwrap();
        self.fits(&form, &document, operation);
        document
    }

    /// Reads a stream of events to its end: their names. They have the form that the page says.
    async fn events(
        &mut self,
        session: &str,
    ) -> impl AsyncFnMut(&mut Self) -> Option<String> + use<> {
        let request = Request::builder()
            .uri(format!("/v1/sessions/{session}/events"))
            .header("host", "localhost");
        let request = request.body(Body::empty()).unwrap();
        let answer = self.service.clone().oneshot(request).await.unwrap();
        let mut events = answer.into_body().into_data_stream();
        async move |api: &mut Self| {
            let event = events.next().await?.unwrap();
            let text = String::from_utf8(event.to_vec()).unwrap();
            let (_, document) = text.split_once("data: ").unwrap();
            let document: Value = serde_json::from_str(document).unwrap();
            let form = json!({"$ref": "#/components/schemas/Event"});
            api.fits(&form, &document, "an event");
            Some(document["event"].as_str().unwrap().to_owned())
        }
    }

    fn resolved(&self, form: &Value) -> Value {
        match form["$ref"].as_str() {
            Some(path) => {
                let path = path.trim_start_matches('#');
                self.page
                    .pointer(path)
                    .unwrap_or_else(|| panic!("{path}"))
                    .clone()
            }
            None => form.clone(),
        }
    }

    /// Fails unless the value has the form.
    fn fits(&mut self, form: &Value, value: &Value, place: &str) {
        if let Err(why) = self.compare(form, value) {
            panic!("{place}: {why}: {value}");
        }
    }

    fn compare(&mut self, form: &Value, value: &Value) -> Result<(), String> {
        let name = form["$ref"]
            .as_str()
            .and_then(|path| path.rsplit('/').next());
        let name = name.map(str::to_owned);
        let form = self.resolved(form);
        if let Some(forms) = form["oneOf"].as_array() {
            let fitting = forms
                .iter()
                .filter(|form| self.compare(form, value).is_ok())
                .count();
            return if fitting == 1 {
                Ok(())
            } else {
                Err(format!("fits {fitting} forms"))
            };
        }
        if let Some(constant) = form.get("const") {
            return if constant == value {
                Ok(())
            } else {
                Err(format!("is not {constant}"))
            };
        }
        if let Some(values) = form["enum"].as_array()
            && !values.contains(value)
        {
            return Err(format!("{value} is none of {values:?}"));
        }
        let is_of = |kind: &str| match kind {
            "string" => value.is_string(),
            "integer" => value.is_u64(),
            "boolean" => value.is_boolean(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            "null" => value.is_null(),
            other => panic!("{other}"),
        };
        let is_fit = match &form["type"] {
            Value::String(kind) => is_of(kind),
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).any(is_of),
            other => panic!("{other}"),
        };
        if !is_fit {
            return Err(format!("{value} is no {}", form["type"]));
        }
        for item in value.as_array().into_iter().flatten() {
            self.compare(&form["items"], item)?;
        }
        let (Some(fields), Some(known)) = (value.as_object(), form["properties"].as_object())
        else {
            return Ok(());
        };
        for needed in form["required"].as_array().into_iter().flatten() {
            if !fields.contains_key(needed.as_str().unwrap()) {
                return Err(format!("{needed} is missing"));
            }
        }
        for (field, value) in fields {
            let form = known
                .get(field)
                .ok_or_else(|| format!("{field} is not on the page"))?;
            self.compare(form, value)
                .map_err(|why| format!("{field}: {why}"))?;
        }
        if let Some(name) = name {
            self.seen
                .entry(name)
                .or_default()
                .extend(fields.keys().cloned());
        }
        Ok(())
    }

    /// Fails if the page has a field of a document that was never seen.
    fn assert_all_seen(&self, is_here: impl Fn(&str) -> bool) {
        let forms = self.page["components"]["schemas"].as_object().unwrap();
        for (name, form) in forms.iter().filter(|(name, _)| is_here(name)) {
            let Some(fields) = form["properties"].as_object() else {
                continue;
            };
            let none = BTreeSet::new();
            let seen = self.seen.get(name).unwrap_or(&none);
            let fields: BTreeSet<String> = fields.keys().cloned().collect();
            let unseen: Vec<_> = fields.difference(seen).collect();
            // An unknown lock has an error, which needs a store that fails.
            let fails = ["error", "may_have_taken_effect", "reason"].map(str::to_owned);
            let unseen: Vec<_> = unseen
                .into_iter()
                .filter(|field| !fails.contains(field))
                .collect();
            assert_eq!(unseen, Vec::<&String>::new(), "{name}");
        }
    }
}

fn text(document: &Value, field: &str) -> String {
    document[field].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn answers_have_the_form_of_the_page() {
    let mut api = Checked::new();
    let none = || Value::Null;
    let opens = json!({"ttl_ms": 60_000, "note": "web"});
    let session = api.ask("POST /v1/sessions", &[], "", opens, 201).await;
    let session = &text(&session, "session");
    api.ask(
        "POST /v1/sessions/{session}/beat",
        &[session],
        "",
        json!({}),
        200,
    )
    .await;
    api.ask(
        "POST /v1/sessions/{session}/beat",
        &["none"],
        "",
        json!({}),
        404,
    )
    .await;

    let wanted = |lock: &str| json!({"session": session, "lock": lock, "ttl_ms": 60_000, "wait_ms": 0, "note": "n", "mode": "exclusive"});
    let lease = api.ask("POST /v1/leases", &[], "", wanted("x"), 201).await;
    let lease = &text(&lease, "lease");
    api.ask("POST /v1/leases", &[], "", wanted("x"), 409).await;
    api.ask("POST /v1/leases", &[], "", wanted(""), 400).await;
    let waits = json!({"session": session, "lock": "x", "wait_ms": 1});
    api.ask("POST /v1/leases", &[], "", waits, 408).await;
    let both = json!({"session": session, "lock": "a", "also": ["b"]});
    api.ask("POST /v1/leases", &[], "", both, 201).await;
    for mode in ["shared", "slot/2"] {
        let wanted = json!({"session": session, "lock": mode, "mode": mode});
        api.ask("POST /v1/leases", &[], "", wanted, 201).await;
    }
    api.ask("GET /v1/sessions/{session}", &[session], "", none(), 200)
        .await;
    api.ask("GET /v1/leases/{lease}", &[lease], "", none(), 200)
        .await;
    let check = "POST /v1/leases/{lease}/check";
    api.ask(check, &[lease], "", json!({"min_ms": 1}), 200)
        .await;
    api.ask(check, &[lease], "", json!({"min_ms": 600_000}), 409)
        .await;

    api.ask("GET /v1/locks", &[], "?limit=2", none(), 200).await;
    api.ask("GET /v1/locks/{name}", &["none"], "", none(), 200)
        .await;
    let long = "x".repeat(2_000);
    api.ask("GET /v1/locks/{name}", &[&long], "", none(), 400)
        .await;
    api.ask("GET /v1/leaders/{name}", &["x"], "?note=n", none(), 200)
        .await;
    api.ask("GET /v1/leaders/{name}", &["x"], "?note=m", none(), 409)
        .await;
    api.ask("GET /v1/leaders/{name}", &["none"], "", none(), 404)
        .await;

    api.ask("DELETE /v1/leases/{lease}", &[lease], "", none(), 200)
        .await;
    api.ask("DELETE /v1/leases/{lease}", &[lease], "", none(), 404)
        .await;
    api.ask("GET /v1/leases/{lease}", &["none"], "", none(), 404)
        .await;

    let detached = json!({"lock": "t", "ttl_ms": 60_000, "wait_ms": 0, "note": ""});
    let granted = api
        .ask("POST /v1/tokens", &[], "", detached.clone(), 201)
        .await;
    api.ask("POST /v1/tokens", &[], "", detached, 409).await;
    let token = text(&granted, "token");
    let renew = json!({"lock": "t", "token": token, "ttl_ms": 60_000});
    api.ask("POST /v1/tokens/renew", &[], "", renew.clone(), 200)
        .await;
    let check = json!({"lock": "t", "token": token, "min_ms": 1});
    api.ask("POST /v1/tokens/check", &[], "", check, 200).await;
    let release = json!({"lock": "t", "token": token});
    api.ask("POST /v1/tokens/release", &[], "", release.clone(), 200)
        .await;
    api.ask("POST /v1/tokens/release", &[], "", release, 410)
        .await;
    api.ask("POST /v1/tokens/renew", &[], "", renew, 410).await;
    api.ask("DELETE /v1/sessions/{session}", &[session], "", none(), 200)
        .await;
    // After the end, nothing is granted.
    api.leases.close();
    let wanted = json!({"lock": "u", "ttl_ms": 60_000});
    let refused = api.ask("POST /v1/tokens", &[], "", wanted, 503).await;
    assert_eq!(refused["error"], "closing");
    api.ask("POST /v1/sessions", &[], "", json!({}), 503).await;
    for route in [
        "GET /v1/sessions/{session}",
        "DELETE /v1/sessions/{session}",
        "POST /v1/sessions/{session}/beat",
        "GET /v1/sessions/{session}/events",
        "GET /v1/leases/{lease}",
        "DELETE /v1/leases/{lease}",
        "POST /v1/leases/{lease}/check",
    ] {
        let refused = api.ask(route, &["none.1"], "", none(), 503).await;
        assert_eq!(refused["error"], "closing", "{route}");
    }
    api.ask("GET /v1/locks/{name}", &["u"], "", none(), 200)
        .await;
    api.assert_all_seen(|name| name != "Event");
}

#[tokio::test]
async fn events_have_the_form_of_the_page() {
    let mut api = Checked::new();
    let session = api.ask("POST /v1/sessions", &[], "", json!({}), 201).await;
    let session = &text(&session, "session");
    let mut events = api.events(session).await;
    for (lock, end) in [("e", "released"), ("f", "lost")] {
        // A renewal finds the loss.
        let wanted = json!({"session": session, "lock": lock, "ttl_ms": 6_000});
        let lease = api.ask("POST /v1/leases", &[], "", wanted, 201).await;
        let (lease, fence) = (text(&lease, "lease"), lease["fence"].as_u64().unwrap());
        while events(&mut api).await.unwrap() != "acquired" {}
        let release = "DELETE /v1/leases/{lease}";
        if lock == "e" {
            api.ask(release, &[&lease], "", Value::Null, 200).await;
        } else {
            let fence = Fence::new(fence);
            assert!(api.client.break_lock(lock, fence).await.unwrap());
        }
        while events(&mut api).await.unwrap() != end {}
    }
    api.ask(
        "DELETE /v1/sessions/{session}",
        &[session],
        "",
        Value::Null,
        200,
    )
    .await;
    assert_eq!(events(&mut api).await.unwrap(), "ended");
    assert_eq!(events(&mut api).await, None);
    api.assert_all_seen(|name| name == "Event");
}
