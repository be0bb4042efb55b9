//! A client of `leasehold serve` that speaks HTTP by hand, so that a test chooses each byte.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};
use socket2::SockRef;

use crate::common::{LIMIT, Running, Store, Words, json as parsed};

/// A `leasehold serve` that listens.
pub(crate) struct Served {
    pub(crate) running: Running,
    /// `127.0.0.1:PORT`, or the path of a socket.
    pub(crate) at: String,
    /// The path before all routes.
    pub(crate) base: String,
    pub(crate) token: Option<String>,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// Its document. It has this status.
    #[track_caller]
    pub(crate) fn is(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        parsed(&self.body)
    }

    /// It is refused with this status and this error.
    #[track_caller]
    pub(crate) fn refuses(&self, status: u16, error: &str) -> Value {
        let document = self.is(status);
        assert_eq!(document["schema"], "leasehold.error/1", "{self:?}");
        assert_eq!(document["error"], error, "{self:?}");
        document
    }
}

impl Served {
    /// `leasehold serve --url URL words...` on a free port.
    #[track_caller]
    pub(crate) fn start(store: &Store, words: &(impl Words + ?Sized)) -> Self {
        Self::by("serve", store, words)
    }

    /// Starts a server by this verb.
    #[track_caller]
    pub(crate) fn by(verb: &str, store: &Store, words: &(impl Words + ?Sized)) -> Self {
        let words = words.list();
        let listens = words
            .iter()
            .any(|word| ["--listen", "--socket"].contains(word));
        let free = if listens { "" } else { "--listen 127.0.0.1:0" };
        let running = store.verb(verb, "--json").words(free).words(&words);
        let running = running.start();
        running.until_it_writes("\n");
        let ready = parsed(&running.written());
        let url = ready["url"].as_str().expect("a URL");
        let (at, base) = match url.strip_prefix("http://") {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => (url.trim_start_matches("unix:"), ""),
        };
        Self {
            at: at.to_owned(),
            base: base.to_owned(),
            token: ready["token"].as_str().map(str::to_owned),
            running,
        }
    }

    /// A connection.
    pub(crate) fn connect(&self) -> Connection {
        if self.at.starts_with('/') {
            let stream = UnixStream::connect(&self.at).expect("a connection");
            stream.set_read_timeout(Some(LIMIT)).expect("a limit");
            return Connection::Unix(stream);
        }
        let stream = TcpStream::connect(&self.at).expect("a connection");
        stream.set_read_timeout(Some(LIMIT)).expect("a limit");
        stream.set_write_timeout(Some(LIMIT)).expect("a limit");
        Connection::Tcp(stream)
    }

    /// The headers of a request with a token.
    pub(crate) fn head(&self, method: &str, path: &str) -> String {
        let token = self.token.as_deref().unwrap_or_default();
        let base = &self.base;
        format!(
            "{method} {base}{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        )
    }

    /// Sends these bytes on a new connection, and reads the answer.
    pub(crate) fn raw(&self, request: &[u8]) -> io::Result<Answer> {
        let mut connection = self.connect();
        connection.write_all(request)?;
        let mut text = Vec::new();
        connection.read_to_end(&mut text)?;
        Ok(answer(&text))
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        let connection = self.begin(method, path, body);
        end(connection)
    }

    /// Sends a request, and does not wait for its answer.
    pub(crate) fn begin(&self, method: &str, path: &str, body: &Value) -> Connection {
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let head = self.head(method, path);
        let request = format!(
            "{head}Connection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut connection = self.connect();
        connection
            .write_all(request.as_bytes())
            .expect("it is sent");
        connection
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &Value::Null)
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.ask("DELETE", path, &Value::Null)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, body)
    }

    /// A session that needs a beat once in an hour.
    #[track_caller]
    pub(crate) fn session(&self) -> String {
        let opened = self.post("/v1/sessions", &json!({"ttl_ms": 3_600_000}));
        id(&opened.is(201), "session")
    }

    /// A session that lives with its stream of events, and that stream.
    #[track_caller]
    pub(crate) fn session_with_stream(&self) -> (String, EventStream) {
        let session = id(&self.post("/v1/sessions", &json!({})).is(201), "session");
        let stream = self.stream(&session);
        (session, stream)
    }

    /// The events of a session.
    #[track_caller]
    pub(crate) fn stream(&self, session: &str) -> EventStream {
        let head = self.head("GET", &format!("/v1/sessions/{session}/events"));
        let mut connection = self.connect();
        connection
            .write_all(format!("{head}\r\n").as_bytes())
            .expect("it is sent");
        let mut stream = EventStream(BufReader::new(connection));
        let status = stream.line().expect("a status");
        assert!(status.contains(" 200 "), "{status}");
        while stream.line().is_some_and(|line| !line.is_empty()) {}
        stream
    }

    /// Asks for "x" with a TTL of an hour, and these fields too.
    pub(crate) fn acquire(&self, session: &str, more: &Value) -> Answer {
        self.post("/v1/leases", &wanted(session, more))
    }

    /// The id of the lease on "x" that the session has from now on.
    #[track_caller]
    pub(crate) fn held(&self, session: &str) -> String {
        id(&self.acquire(session, &json!({})).is(201), "lease")
    }
}

/// A request for "x" with a TTL of an hour, and these fields too.
pub(crate) fn wanted(session: &str, more: &Value) -> Value {
    let mut body = json!({"session": session, "lock": "x", "ttl_ms": 3_600_000});
    for (name, value) in more.as_object().expect("fields") {
        body[name] = value.clone();
    }
    body
}

/// A text of a document.
#[track_caller]
pub(crate) fn id(document: &Value, field: &str) -> String {
    let text = document[field].as_str();
    text.unwrap_or_else(|| panic!("no {field}: {document}"))
        .to_owned()
}

/// Reads an answer to the end of its connection.
pub(crate) fn end(mut connection: Connection) -> Answer {
    let mut text = Vec::new();
    connection.read_to_end(&mut text).expect("an answer");
    answer(&text)
}

fn answer(text: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(text);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Answer {
        status: status.unwrap_or_default(),
        head: head.to_lowercase(),
        body: body.to_owned(),
    }
}

/// A connection of either kind. Dropping it closes it.
pub(crate) enum Connection {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Connection {
    /// Sends no more.
    pub(crate) fn finish(&self) {
        // Fails if the other side has closed it.
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write).ok(),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write).ok(),
        };
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream of events. Dropping it closes its connection.
pub(crate) struct EventStream(BufReader<Connection>);

impl EventStream {
    /// Leaves what the server sends to the server's own buffers.
    pub(crate) fn reads_little(&self) {
        if let Connection::Tcp(stream) = self.0.get_ref() {
            let socket = SockRef::from(stream);
            socket.set_recv_buffer_size(4_096).expect("a buffer");
        }
    }

    /// The next line. `None` at the end.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let length = self
            .0
            .read_line(&mut line)
            .expect("a line within the limit");
        (length > 0).then(|| line.trim_end().to_owned())
    }

    /// The document of the next event. `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Value> {
        // Each ten seconds comes a sign of life, which keeps the limit of the connection from passing.
        let mut signs = 0;
        while signs < 4 {
            // Sizes of chunks and names of events are passed over.
            let line = self.line()?;
            if let Some(document) = line.strip_prefix("data: ") {
                return Some(parsed(document));
            }
            signs += usize::from(line == ":");
        }
        panic!("no event, but signs of life")
    }

    /// The next event, which is this one.
    #[track_caller]
    pub(crate) fn tells(&mut self, event: &str) -> Value {
        let document = self.next().expect("an event");
        assert_eq!(document["event"], event, "{document}");
        document
    }
}
