//! One connection: moves the bytes of the requests in flight. Nothing is sent or read unless it is polled.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
#[cfg(feature = "entries")]
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use futures_util::future::poll_fn;
use futures_util::task::AtomicWaker;
#[cfg(any(test, feature = "doctor"))]
use leasehold_core::{LockName, Reply, Step};
use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, Pipeline, PushKind, RedisError, RedisFuture, RedisResult, Value, cmd};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

use crate::access::Duplex;
use crate::clock::Clock;
#[cfg(any(test, feature = "doctor"))]
use crate::clock::Moment;
use crate::store::contract::{Listener, Notice};
#[cfg(any(test, feature = "doctor"))]
use crate::store::redis::pipeline::Batch;
use crate::store::redis::pipeline::{ASKING, Call, Flight};
use crate::store::redis::protocol;
#[cfg(any(test, feature = "doctor"))]
use crate::store::redis::protocol::{Contended, Kind};
use crate::store::redis::resp::Reader;
#[cfg(any(test, feature = "doctor"))]
use crate::store::redis::scripts::Scripts;
#[cfg(feature = "entries")]
use crate::store::redis::server_time::ServerTime;

/// The channel of a sentinel on which it tells that a primary was replaced.
pub(super) const SWITCHED: &str = "+switch-master";

/// One connection, and the requests in flight over it.
pub(crate) struct Link {
    stream: Box<dyn Duplex>,
    reader: Reader,
    calls: mpsc::UnboundedReceiver<Call>,
    /// Woken after each call, so that a poll without one costs little.
    called: Arc<AtomicWaker>,
    pub(super) flight: Flight,
    /// Hears the notices of the server.
    listener: Listener,
    clock: Clock,
    /// Written bytes may still be in a buffer of the stream.
    is_flushed: bool,
    /// The connection for messages, if this one speaks RESP2: a subscribed connection takes no other request there.
    messages: Option<Box<Self>>,
}

/// Sends calls over one connection, and knows what they have found out about its server. They fail once the connection has ended: the next
/// one may lead to another server.
#[derive(Clone)]
pub(crate) struct Wire {
    calls: mpsc::UnboundedSender<Call>,
    called: Arc<AtomicWaker>,
    /// Each request is one command, for a slot that the node does not own yet.
    asking: bool,
    /// Messages in this slot may answer the requests.
    slot: Option<u16>,
    /// The connection for messages, if this one speaks RESP2.
    messages: Option<Arc<Self>>,
    /// The clock of the server.
    #[cfg(feature = "entries")]
    pub(in crate::store::redis) time: Arc<ServerTime>,
    /// Whether the server reports changes of the cache entries that were read (client tracking). The first read that asks for that sets it.
    #[cfg(feature = "entries")]
    pub(in crate::store::redis) tracking: Arc<OnceLock<bool>>,
}

impl Link {
    pub(super) fn new(
        stream: Box<dyn Duplex>,
        flight: Flight,
        listener: Listener,
        clock: Clock,
    ) -> (Self, Wire) {
        let (sender, calls) = mpsc::unbounded_channel();
        let called = Arc::<AtomicWaker>::default();
        let wire = Wire {
            calls: sender,
            called: called.clone(),
            asking: false,
            slot: None,
            messages: None,
            #[cfg(feature = "entries")]
            time: Arc::default(),
            #[cfg(feature = "entries")]
            tracking: Arc::default(),
        };
        let link = Self {
            stream,
            reader: Reader::default(),
            calls,
            called,
            flight,
            listener,
            clock,
            is_flushed: true,
            messages: None,
        };
        (link, wire)
    }

    /// This connection speaks RESP2, and the other one brings its messages. It ends with either.
    pub(super) fn hears_by(
        self,
        wire: Wire,
        (mut messages, subscribes): (Self, Wire),
    ) -> (Self, Wire) {
        messages.reader.arrays_are_pushes = true;
        let link = Self {
            messages: Some(Box::new(messages)),
            ..self
        };
        let wire = Wire {
            messages: Some(Arc::new(subscribes)),
            ..wire
        };
        (link, wire)
    }

    /// Closes the connection for messages: a server ends one that is idle and not subscribed.
    pub(super) fn hears_nothing(&mut self) {
        self.messages = None;
    }

    /// Moves bytes until the connection ends. Returns why.
    pub(crate) async fn run(&mut self) -> RedisError {
        poll_fn(|context| {
            loop {
                if let Err(error) = ready!(self.poll_read(context)) {
                    return Poll::Ready(error);
                }
            }
        })
        .await
    }

    /// Moves bytes until `asked` is answered. The error: the connection has ended without an answer.
    pub(crate) async fn until<T>(
        &mut self,
        asked: impl Future<Output = T>,
    ) -> Result<T, RedisError> {
        let mut asked = pin!(asked);
        tokio::select! {
            biased;
            answer = &mut asked => Ok(answer),
            // The answer may have come together with the end.
            error = self.run() => asked.now_or_never().ok_or(error),
        }
    }

    /// Writes what is to be sent, and reads once. Ready if something has arrived.
    pub(super) fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<RedisResult<()>> {
        if let Some(messages) = &mut self.messages {
            while messages.poll_read(context)?.is_ready() {}
        }
        self.called.register(context.waker());
        if !self.calls.is_empty() {
            while let Poll::Ready(Some(call)) = self.calls.poll_recv(context) {
                self.flight.call(call);
            }
        }
        self.write(context)?;
        let mut space = ReadBuf::new(self.reader.space());
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut space))?;
        let count = space.filled().len();
        if count == 0 {
            return Poll::Ready(Err(self.end()));
        }
        self.reader.filled(count);
        let now = self.clock.now();
        while let Some(value) = self.reader.next()? {
            match value {
                // It answers the request to subscribe.
                Value::Push {
                    kind: PushKind::Subscribe | PushKind::SSubscribe,
                    ..
                } => self.flight.hear(Value::Okay, now)?,
                Value::Push {
                    kind: PushKind::SUnsubscribe,
                    data,
                } => {
                    if let Some(channel) = data.first().and_then(protocol::text) {
                        self.flight.is_deaf_on(channel);
                    }
                    (self.listener)(Notice::Missed);
                }
                Value::Push { kind, data } => self.hear(&kind, &data),
                reply => self.flight.hear(reply, now)?,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what is to be sent, as far as the stream takes it now.
    pub(super) fn write(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while !self.flight.out().is_empty() {
            let out = self.flight.out();
            match Pin::new(&mut self.stream).poll_write(context, out) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => self.flight.is_out(count),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => return Ok(()),
            }
            self.is_flushed = false;
        }
        if !self.is_flushed && Pin::new(&mut self.stream).poll_flush(context)?.is_ready() {
            self.is_flushed = true;
        }
        Ok(())
    }

    fn hear(&self, kind: &PushKind, data: &[Value]) {
        match kind {
            // Heard by who follows the sentinels: what they said before is out of date.
            PushKind::Message if data.first().and_then(protocol::text) == Some(SWITCHED) => {
                (self.listener)(Notice::Missed);
            }
            PushKind::Message | PushKind::SMessage => {
                if let Some(Value::BulkString(payload)) = data.get(1)
                    && let Some(notice) = protocol::notice(payload)
                {
                    (self.listener)(notice);
                }
            }
            #[cfg(feature = "entries")]
            PushKind::Invalidate => (self.listener)(protocol::changed(data)),
            _ => {}
        }
    }

    fn end(&self) -> RedisError {
        if self.reader.is_inside_reply() {
            let (what, detail) = ("the connection was closed", "unexpected end of input");
            (ErrorKind::Parse, what, detail.to_owned()).into()
        } else {
            let what = "it closed the connection";
            io::Error::new(io::ErrorKind::UnexpectedEof, what).into()
        }
    }
}

/// The connection ended before an answer came.
fn lost() -> RedisError {
    let what = "the connection was lost";
    io::Error::new(io::ErrorKind::UnexpectedEof, what).into()
}

impl Wire {
    /// Subscribes the connection to a channel.
    pub(crate) async fn subscribe(&self, channel: &str) -> RedisResult<()> {
        let mut subscribe = cmd("SUBSCRIBE");
        subscribe.arg(channel);
        let wire = self.messages.as_deref().unwrap_or(self);
        let reply = wire.send(subscribe.get_packed_command(), 1).await?.pop();
        reply.unwrap_or(Value::Okay).extract_error().map(drop)
    }

    /// True if the server may be asked to report changes of cache entries: it does so between two replies, and that takes a command before
    /// the read, while `ASKING` is for one command only.
    #[cfg(feature = "entries")]
    pub(crate) fn may_track(&self) -> bool {
        self.has_pushes() && !self.asking && self.tracking.get() != Some(&false)
    }

    /// True if the server may push a message between two replies.
    pub(crate) const fn has_pushes(&self) -> bool {
        self.messages.is_none()
    }

    /// Executes the steps of one batch, each with its own answer. The error: there is no reply.
    #[cfg(any(test, feature = "doctor"))]
    pub(crate) async fn run_batch(
        &self,
        scripts: &Arc<Scripts>,
        channel: &str,
        kind: Kind,
        steps: Vec<(LockName, Step)>,
    ) -> RedisResult<Vec<RedisResult<Reply>>> {
        let at = Moment::from_micros(0);
        let mut flight = Flight::new(scripts.clone(), channel.to_owned());
        let id = 0;
        flight.begin(Batch::new(id, kind, steps, &Contended::default()), at);
        loop {
            if let Some(completed) = flight.next_completed() {
                return Ok(completed.answers.into_iter().flatten().collect());
            }
            let request = flight.out().to_vec();
            flight.is_out(request.len());
            for reply in self.send(request, flight.awaits()).await? {
                flight.hear(reply, at)?;
            }
        }
    }

    async fn send(&self, bytes: Vec<u8>, replies: usize) -> RedisResult<Vec<Value>> {
        if replies == 0 {
            return Ok(Vec::new());
        }
        let asks = usize::from(self.asking);
        let bytes = if self.asking {
            [ASKING, &bytes].concat()
        } else {
            bytes
        };
        let (call, answer) = Call::new(bytes, replies + asks, self.slot);
        self.calls.send(call).map_err(|_| lost())?;
        self.called.wake();
        let mut heard = answer.await.map_err(|_| lost())?;
        Ok(heard.split_off(asks))
    }

    /// The same connection, subscribed to the client's channel in this slot of a cluster.
    #[cfg(feature = "entries")]
    pub(crate) fn listening_in(self, slot: u16) -> Self {
        Self {
            slot: Some(slot),
            ..self
        }
    }

    /// The same connection. `asking`: each request is one command, for a slot that the node does not own yet.
    pub(crate) fn asking(self, asking: bool) -> Self {
        Self { asking, ..self }
    }
}

impl ConnectionLike for Wire {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let reply = self.send(command.get_packed_command(), 1);
        reply
            .map(|replies| Ok(replies?.pop().unwrap_or(Value::Nil)))
            .boxed()
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        let replies = self.send(commands.get_packed_pipeline(), offset + count);
        replies
            .map(move |replies| Ok(replies?.split_off(offset)))
            .boxed()
    }

    fn get_db(&self) -> i64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// A connection, and how many times its server has answered PING.
    fn connect() -> (Wire, Arc<AtomicU32>) {
        let (near, mut far) = duplex(1 << 20);
        let flight = Flight::new(Arc::default(), String::new());
        let (mut link, wire) = Link::new(Box::new(near), flight, Arc::new(drop), Clock::system());
        let answered = Arc::<AtomicU32>::default();
        let counter = answered.clone();
        let tasks = crate::runtime::Tasks::here().unwrap();
        tasks.spawn_aside(async move { drop(link.run().await) });
        tasks.spawn_aside(async move {
            let mut ping = [0; b"*1\r\n$4\r\nPING\r\n".len()];
            while far.read_exact(&mut ping).await.is_ok() {
                counter.fetch_add(1, Ordering::Relaxed);
                far.write_all(b"+PONG\r\n").await.unwrap();
            }
        });
        (wire, answered)
    }

    async fn ping(mut wire: Wire) {
        let answer: String = cmd("PING").query_async(&mut wire).await.unwrap();
        assert_eq!(answer, "PONG");
    }

    /// As many calls as a task may take in one turn of tokio, and one less and more.
    #[tokio::test]
    async fn call_after_many_at_once_is_sent() {
        for count in 126..=130 {
            let (wire, _) = connect();
            let all = (0..count).map(|_| ping(wire.clone()));
            futures_util::future::join_all(all).await;
            let one_more = tokio::time::timeout(Duration::from_secs(20), ping(wire));
            one_more.await.expect("the call is sent");
        }
    }

    #[tokio::test]
    async fn caller_that_has_gone_costs_the_server_nothing() {
        let (wire, answered) = connect();
        let mut gone = Box::pin(ping(wire.clone()));
        assert!(futures_util::poll!(gone.as_mut()).is_pending());
        drop(gone);
        ping(wire).await;
        assert_eq!(answered.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn calls_fail_when_the_connection_ends() {
        let (near, far) = duplex(64);
        let flight = Flight::new(Arc::default(), String::new());
        let (mut link, wire) = Link::new(Box::new(near), flight, Arc::new(drop), Clock::system());
        let asked = wire.send(b"*1\r\n$4\r\nPING\r\n".to_vec(), 1);
        drop(far);
        let ended = link.until(asked).await;
        assert!(ended.is_err(), "{ended:?}");
        drop(link);
        let refused = wire.send(b"*1\r\n$4\r\nPING\r\n".to_vec(), 1).await;
        assert!(refused.unwrap_err().is_connection_dropped());
    }
}
