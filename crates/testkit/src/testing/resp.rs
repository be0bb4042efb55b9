//! A minimal RESP2 client over a blocking socket, to examine a server without the code under
//! test. It never retries or reconnects.

use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than any test's own limits, so that a hang is reported here with a reason.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The number of words of a command that a message shows.
const SHOWN: usize = 7;

/// A server's reply to one command.
#[derive(Clone, PartialEq, Eq)]
pub enum Reply {
    /// The null bulk string or null array.
    Nil,
    /// An integer.
    Int(i64),
    /// A simple or bulk string, as bytes (see [`Reply::text`]).
    Str(Vec<u8>),
    /// An error, with its code: `WRONGTYPE Operation ...`.
    Err(String),
    /// An array; it may contain an `Err`, as after `EXEC`.
    Array(Vec<Reply>),
}

impl Reply {
    /// The string as text; panics for any other reply, and when it is not UTF-8.
    #[track_caller]
    pub fn text(&self) -> String {
        match std::str::from_utf8(self.bytes()) {
            Ok(text) => text.to_owned(),
            Err(error) => panic!("expected text, got {self:?}: {error}"),
        }
    }

    /// The string as bytes; panics for any other reply.
    #[track_caller]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Str(bytes) => bytes,
            other => panic!("expected a string, got {other:?}"),
        }
    }

    /// The integer, or the number a string holds (`GET`, `TIME`); panics for any other reply.
    #[track_caller]
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(number) => Some(*number),
            Self::Str(bytes) => std::str::from_utf8(bytes)
                .ok()
                .and_then(|text| text.parse().ok()),
            _ => None,
        }
        .unwrap_or_else(|| panic!("expected a number, got {self:?}"))
    }

    /// The array's items; panics for any other reply.
    #[track_caller]
    pub fn array(&self) -> &[Reply] {
        match self {
            Self::Array(items) => items,
            other => panic!("expected an array, got {other:?}"),
        }
    }

    /// The error's text, if this is an error.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Err(text) => Some(text),
            _ => None,
        }
    }

    /// Whether this is the null reply.
    pub fn is_nil(&self) -> bool {
        matches!(self, Self::Nil)
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("Nil"),
            Self::Int(number) => write!(f, "Int({number})"),
            // A list of byte values would make a failed assertion unreadable.
            Self::Str(bytes) => write!(f, "Str(\"{}\")", bytes.escape_ascii()),
            Self::Err(text) => write!(f, "Err({text:?})"),
            Self::Array(items) => f.debug_tuple("Array").field(items).finish(),
        }
    }
}

/// One connection to a server (or to a proxy in front of it).
#[derive(Debug)]
pub struct RespConn {
    reader: BufReader<TcpStream>,
}

impl RespConn {
    /// Connects to `port` on 127.0.0.1; panics if it is refused.
    #[track_caller]
    pub fn connect(port: u16) -> Self {
        match Self::try_connect(port) {
            Ok(connection) => connection,
            Err(error) => panic!("cannot connect to 127.0.0.1:{port}: {error}"),
        }
    }

    /// Connects to `port` on 127.0.0.1.
    pub fn try_connect(port: u16) -> io::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_nodelay(true)?;
        let connection = Self {
            reader: BufReader::new(stream),
        };
        connection.set_timeout(TIMEOUT);
        Ok(connection)
    }

    /// How long to wait for a reply (20 s unless set).
    pub fn set_timeout(&self, limit: Duration) {
        let stream = self.reader.get_ref();
        stream
            .set_read_timeout(Some(limit))
            .expect("a timeout above zero");
        stream
            .set_write_timeout(Some(limit))
            .expect("a timeout above zero");
    }

    /// One command and its reply; panics when the connection fails. An error reply is a
    /// [`Reply::Err`], not a panic.
    #[track_caller]
    pub fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        match self.try_command(args) {
            Ok(reply) => reply,
            Err(error) => panic!("no reply to {}: {error}", shown(args)),
        }
    }

    /// One command and its reply, or how the connection failed (`WouldBlock` or `TimedOut` when
    /// no reply came in time). After a failure the connection is out of step: drop it.
    pub fn try_command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        self.send(args)?;
        self.receive()
    }

    /// Several commands in one write, then all their replies in order.
    #[track_caller]
    pub fn commands(&mut self, commands: &[Vec<Vec<u8>>]) -> Vec<Reply> {
        let mut request = Vec::new();
        for args in commands {
            encode(args, &mut request);
        }
        if let Err(error) = self.reader.get_mut().write_all(&request) {
            panic!("cannot send {} commands: {error}", commands.len());
        }
        let mut replies = Vec::with_capacity(commands.len());
        for args in commands {
            match self.receive() {
                Ok(reply) => replies.push(reply),
                Err(error) => panic!("no reply to {}: {error}", shown(args)),
            }
        }
        replies
    }

    /// Writes a command without waiting for its reply.
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<()> {
        let mut request = Vec::new();
        encode(args, &mut request);
        self.reader.get_mut().write_all(&request)
    }

    /// Reads the next reply (or the next message of a subscription).
    pub fn receive(&mut self) -> io::Result<Reply> {
        read_reply(&mut self.reader)
    }

    /// Whether the server has not closed this connection and has nothing unread in it.
    pub(crate) fn is_idle(&self) -> bool {
        let stream = self.reader.get_ref();
        let nothing_there = || -> io::Result<bool> {
            stream.set_nonblocking(true)?;
            let peeked = stream.peek(&mut [0]);
            stream.set_nonblocking(false)?;
            Ok(matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock))
        };
        self.reader.buffer().is_empty() && nothing_there().unwrap_or(false)
    }
}

/// The first words of a command, which may have thousands.
pub(crate) fn shown<A: AsRef<[u8]>>(args: &[A]) -> String {
    let words: Vec<String> = args
        .iter()
        .take(SHOWN)
        .map(|arg| arg.as_ref().escape_ascii().to_string())
        .collect();
    format!("`{}`", words.join(" "))
}

fn encode<A: AsRef<[u8]>>(args: &[A], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        let bytes = arg.as_ref();
        out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
    }
}

fn read_reply(reader: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::Error::new(
            ErrorKind::UnexpectedEof,
            "the server closed the connection",
        ));
    }
    let malformed = || {
        let text = format!("not a RESP2 reply: `{}`", line.escape_ascii());
        io::Error::new(ErrorKind::InvalidData, text)
    };
    let text = line.strip_suffix(b"\r\n").ok_or_else(malformed)?;
    let (kind, rest) = text.split_first().ok_or_else(malformed)?;
    let number = || {
        std::str::from_utf8(rest)
            .ok()
            .and_then(|n| n.parse::<i64>().ok())
            .ok_or_else(malformed)
    };
    Ok(match kind {
        b'+' => Reply::Str(rest.to_vec()),
        b'-' => Reply::Err(String::from_utf8_lossy(rest).into_owned()),
        b':' => Reply::Int(number()?),
        b'$' => match usize::try_from(number()?) {
            Ok(length) => {
                let mut bytes = vec![0; length + 2];
                reader.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Reply::Str(bytes)
            }
            Err(_) => Reply::Nil,
        },
        b'*' => match usize::try_from(number()?) {
            Ok(length) => Reply::Array(
                (0..length)
                    .map(|_| read_reply(reader))
                    .collect::<io::Result<_>>()?,
            ),
            Err(_) => Reply::Nil,
        },
        _ => return Err(malformed()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut wire: &[u8]) -> io::Result<Reply> {
        read_reply(&mut wire)
    }

    #[test]
    fn reads_every_kind_of_reply() {
        let wire = b"*6\r\n+OK\r\n-ERR no\r\n:-7\r\n$4\r\na\r\n\xff\r\n$-1\r\n*0\r\n";
        let reply = read(wire).expect("well formed");
        assert_eq!(reply.array()[0].text(), "OK");
        assert_eq!(reply.array()[1].error(), Some("ERR no"));
        assert_eq!(reply.array()[2].int(), -7);
        assert_eq!(reply.array()[3].bytes(), b"a\r\n\xff");
        assert!(reply.array()[4].is_nil());
        assert_eq!(reply.array()[5], Reply::Array(Vec::new()));
        assert_eq!(Reply::Str(b"12".to_vec()).int(), 12);
        assert!(read(b"*-1\r\n").expect("well formed").is_nil());
    }

    #[test]
    fn reports_a_closed_connection_and_nonsense() {
        assert_eq!(
            read(b"").expect_err("closed").kind(),
            ErrorKind::UnexpectedEof
        );
        assert_eq!(
            read(b"$5\r\nab").expect_err("closed").kind(),
            ErrorKind::UnexpectedEof
        );
        assert_eq!(
            read(b"hello\r\n").expect_err("not RESP").kind(),
            ErrorKind::InvalidData
        );
        assert_eq!(
            read(b"+OK").expect_err("cut short").kind(),
            ErrorKind::InvalidData
        );
    }
}
