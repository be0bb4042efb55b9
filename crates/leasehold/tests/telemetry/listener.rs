//! A subscriber of `tracing` that records all spans and events of the library.

#![allow(dead_code, reason = "each test crate uses its own part of it")]

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, ThreadId};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_core::span::Current;

pub(crate) type Fields = BTreeMap<String, String>;

/// Checks that these fields have these values.
#[track_caller]
pub(crate) fn has(fields: &Fields, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        let found = fields.get(*name).map(String::as_str);
        assert_eq!(found, Some(*value), "{name}: {fields:?}");
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) level: Level,
    pub(crate) message: String,
    pub(crate) fields: Fields,
    pub(crate) span: Option<u64>,
    /// The current span of the thread at the time of the event.
    pub(crate) within: Option<u64>,
    pub(crate) thread: ThreadId,
}

#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) id: u64,
    pub(crate) name: &'static str,
    pub(crate) parent: Option<u64>,
    pub(crate) follows: Option<u64>,
    pub(crate) fields: Fields,
    handles: usize,
}

impl Span {
    pub(crate) fn is_closed(&self) -> bool {
        self.handles == 0
    }
}

#[derive(Default)]
struct Heard {
    spans: Vec<(Span, &'static Metadata<'static>)>,
    events: Vec<Said>,
    entered: HashMap<ThreadId, Vec<u64>>,
}

impl Heard {
    /// The current span of this thread.
    fn current(&self) -> Option<u64> {
        let entered = self.entered.get(&thread::current().id());
        entered.and_then(|entered| entered.last().copied())
    }
}

/// A subscriber. Its clones share one record.
#[derive(Clone, Default)]
pub(crate) struct Listener(Arc<Mutex<Heard>>);

impl Listener {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().expect("no test panics in here")
    }

    /// All events with this message.
    pub(crate) fn all(&self, message: &str) -> Vec<Said> {
        let heard = self.heard();
        let said = heard.events.iter().filter(|said| said.message == message);
        said.cloned().collect()
    }

    /// The one event with this message.
    #[track_caller]
    pub(crate) fn only(&self, message: &str) -> Said {
        let mut all = self.all(message);
        assert_eq!(all.len(), 1, "{message}: {:#?}", self.heard().events);
        all.remove(0)
    }

    /// All spans of this name.
    pub(crate) fn spans(&self, name: &str) -> Vec<Span> {
        let heard = self.heard();
        let spans = heard.spans.iter().map(|(span, _)| span);
        spans.filter(|span| span.name == name).cloned().collect()
    }

    /// The one span of this name.
    #[track_caller]
    pub(crate) fn span(&self, name: &str) -> Span {
        let mut spans = self.spans(name);
        assert_eq!(spans.len(), 1, "{name}: {spans:#?}");
        spans.remove(0)
    }

    /// All recorded events and spans, as one text.
    pub(crate) fn transcript(&self) -> String {
        let heard = self.heard();
        format!("{:?} {:?}", heard.events, heard.spans)
    }
}

impl Subscriber for Listener {
    fn enabled(&self, what: &Metadata<'_>) -> bool {
        what.target() == "leasehold" || what.target() == "test"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut heard = self.heard();
        let id = u64::try_from(heard.spans.len()).expect("few") + 1;
        let current = heard.current();
        let parent = span.parent().map(Id::into_u64);
        let mut fields = Fields::new();
        span.record(&mut Reader(&mut fields));
        let new = Span {
            id,
            name: span.metadata().name(),
            parent: parent.or(current.filter(|_| span.is_contextual())),
            follows: None,
            fields,
            handles: 1,
        };
        heard.spans.push((new, span.metadata()));
        Id::from_u64(id)
    }

    fn current_span(&self) -> Current {
        let heard = self.heard();
        let Some(id) = heard.current() else {
            return Current::none();
        };
        let at = usize::try_from(id - 1).expect("few");
        Current::new(Id::from_u64(id), heard.spans[at].1)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        self.change(id, |span| values.record(&mut Reader(&mut span.fields)));
    }

    fn record_follows_from(&self, id: &Id, follows: &Id) {
        self.change(id, |span| span.follows = Some(follows.into_u64()));
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut Reader(&mut fields));
        let mut heard = self.heard();
        let within = heard.current();
        let said = Said {
            level: *event.metadata().level(),
            message: fields.remove("message").unwrap_or_default(),
            fields,
            span: event.parent().map(Id::into_u64),
            within,
            thread: thread::current().id(),
        };
        heard.events.push(said);
    }

    fn enter(&self, id: &Id) {
        let mut heard = self.heard();
        let entered = heard.entered.entry(thread::current().id()).or_default();
        entered.push(id.into_u64());
    }

    fn exit(&self, _: &Id) {
        if let Some(entered) = self.heard().entered.get_mut(&thread::current().id()) {
            entered.pop();
        }
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.change(id, |span| span.handles += 1);
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        self.change(&id, |span| span.handles -= 1);
        false
    }
}

impl Listener {
    fn change(&self, id: &Id, change: impl FnOnce(&mut Span)) {
        let at = usize::try_from(id.into_u64() - 1).expect("few");
        change(&mut self.heard().spans[at].0);
    }
}

struct Reader<'a>(&'a mut Fields);

impl Visit for Reader<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

/// A subscriber that panics at these calls.
pub(crate) struct Panics(pub(crate) &'static [&'static str]);

impl Panics {
    fn at(&self, call: &str) {
        assert!(!self.0.contains(&call), "{call}");
    }
}

impl Subscriber for Panics {
    fn enabled(&self, what: &Metadata<'_>) -> bool {
        what.target() == "leasehold"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        self.at("span");
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        self.at("record");
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {
        self.at("follows");
    }

    fn event(&self, _: &Event<'_>) {
        self.at("event");
    }

    // Never panics, since otherwise the library could not call `exit`.
    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {
        self.at("exit");
    }

    fn try_close(&self, _: Id) -> bool {
        self.at("close");
        false
    }
}
