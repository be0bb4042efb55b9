//! The codec of a connection: writes commands, and reads replies and pushes, in RESP3 or RESP2.
//!
//! The reader takes each element of a reply once, as soon as it has arrived. So the cost of a reply does not depend on
//! the pieces in which it arrives, and only an unfinished element stays in the buffer.
//!
//! Values and errors are those of redis-rs, which reads the rare types itself. Two things differ: the reader leaves out
//! attributes, and refuses the negative length of an error or a verbatim string, for which redis-rs waits.

#[cfg(test)]
mod tests;

use std::iter;
use std::ops::Range;

use redis::{ParsingError, PushKind, RedisError, RedisResult, Value, parse_redis_value};

/// One command in the form in which it is sent. The caller adds its words one by one.
#[derive(Default)]
pub(super) struct Command {
    words: usize,
    /// The words with their lengths.
    body: Vec<u8>,
}

impl Command {
    /// Begins another command, in the same memory.
    pub(super) fn clear(&mut self) {
        self.words = 0;
        self.body.clear();
    }

    pub(super) fn word(&mut self, word: impl AsRef<[u8]>) -> &mut Self {
        self.joined(&[word.as_ref()])
    }

    /// Adds one word that consists of these parts.
    pub(super) fn joined(&mut self, parts: &[&[u8]]) -> &mut Self {
        self.words += 1;
        let length = parts.iter().map(|part| part.len()).sum();
        write_head(b'$', length, &mut self.body);
        for part in parts {
            self.body.extend_from_slice(part);
        }
        self.body.extend_from_slice(b"\r\n");
        self
    }

    /// Adds one word: what `write` appends.
    pub(super) fn written(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        self.words += 1;
        let start = self.body.len();
        write(&mut self.body);
        let end = self.body.len();
        write_head(b'$', end - start, &mut self.body);
        let head = self.body.len() - end;
        self.body[start..].rotate_right(head);
        self.body.extend_from_slice(b"\r\n");
        self
    }

    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        // Each step has such a number.
        if let Ok(digit @ 0..10) = u8::try_from(number) {
            self.words += 1;
            self.body
                .extend_from_slice(&[b'$', b'1', b'\r', b'\n', b'0' + digit, b'\r', b'\n']);
            return self;
        }
        self.word(digits(number, &mut [0; 20]))
    }

    /// Appends the whole command.
    pub(super) fn write(&self, into: &mut Vec<u8>) {
        write_head(b'*', self.words, into);
        into.extend_from_slice(&self.body);
    }
}

/// Writes the type of a value and its length.
fn write_head(kind: u8, length: usize, into: &mut Vec<u8>) {
    match PAIRS.get(length) {
        Some([b'0', ones]) => into.extend_from_slice(&[kind, *ones, b'\r', b'\n']),
        Some([tens, ones]) => into.extend_from_slice(&[kind, *tens, *ones, b'\r', b'\n']),
        None => {
            into.push(kind);
            into.extend_from_slice(digits(length as u64, &mut [0; 20]));
            into.extend_from_slice(b"\r\n");
        }
    }
}

/// The two decimal digits of each number below 100.
const PAIRS: [[u8; 2]; 100] = {
    let (mut pairs, mut number) = ([[0; 2]; 100], 0);
    while number < 100 {
        pairs[number as usize] = [b'0' + number / 10, b'0' + number % 10];
        number += 1;
    }
    pairs
};

/// Writes the decimal digits of a number at the end of `space`.
pub(super) fn digits(mut number: u64, space: &mut [u8; 20]) -> &[u8] {
    let mut first = space.len();
    loop {
        let pair = PAIRS[(number % 100) as usize];
        first -= 2;
        space[first..first + 2].copy_from_slice(&pair);
        number /= 100;
        if number == 0 {
            return &space[first + usize::from(pair[0] == b'0')..];
        }
    }
}

/// The usual size of a reader's buffer. After a greater element the buffer returns to this size.
const USUAL: usize = 64 * 1024;

/// The least space for the next bytes.
const LEAST: usize = 16 * 1024;

/// The most values in one another, as in redis-rs.
const DEEPEST: usize = 100;

/// The most items for which a new collection has space: a head alone must not take much memory.
const EXPECTED: usize = 64;

/// Reads replies and pushes from the bytes of a connection, in whatever pieces they arrive.
#[derive(Default)]
pub(super) struct Reader {
    buffer: Vec<u8>,
    /// The unread bytes are those from `start` to `end`. They begin with an element.
    start: usize,
    end: usize,
    /// So many unread bytes contain no end of the element's line.
    searched: usize,
    /// The element cannot be whole with fewer unread bytes.
    needed: usize,
    /// The collections around the element, from the outermost.
    open: Vec<Collection>,
    /// RESP2 has no type for pushes: once a connection is subscribed, the server sends them as arrays, and no other ones.
    pub(super) arrays_are_pushes: bool,
}

impl Reader {
    /// Where the next bytes go: at least 16 KB. Replies that `next` has not taken yet stay in the buffer.
    pub(super) fn space(&mut self) -> &mut [u8] {
        let unread = self.end - self.start;
        let size = match unread + LEAST {
            ..=USUAL => USUAL,
            // At least twice the size: the bytes of a big element must not be moved for each piece.
            least if least > self.buffer.len() => least.max(2 * self.buffer.len()),
            _ => self.buffer.len(),
        };
        if unread == 0 {
            (self.start, self.end) = (0, 0);
        }
        if size != self.buffer.len() || size - self.end < LEAST {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, unread);
            self.buffer.resize(size, 0);
            self.buffer.shrink_to(size);
        }
        &mut self.buffer[self.end..]
    }

    /// So many bytes have arrived in the space.
    pub(super) fn filled(&mut self, count: usize) {
        self.end += count;
    }

    /// Takes the next reply or push, if all of it has arrived. After an error, the connection is of no more use.
    pub(super) fn next(&mut self) -> RedisResult<Option<Value>> {
        while let Some(body) = self.element()? {
            let element = &self.buffer[self.start..][..body.end];
            let line = &element[1..body.start - 2];
            self.start += body.end;
            (self.searched, self.needed) = (0, 0);
            let mut value = match element[0] {
                b'+' if line == b"OK" => Value::Okay,
                b'+' => Value::SimpleString(text(line)?.to_owned()),
                b':' => Value::Int(integer(line)?),
                b'_' => text(line).map(|_| Value::Nil)?,
                b'$' if body.is_empty() => Value::Nil,
                b'$' => Value::BulkString(element[body.start..body.end - 2].to_vec()),
                b'*' | b'~' if integer(line)? < 0 => Value::Nil,
                kind @ (b'*' | b'~' | b'%' | b'|' | b'>') => {
                    let is_push = kind == b'*' && self.arrays_are_pushes && self.open.is_empty();
                    let kind = if is_push { b'>' } else { kind };
                    let collection = Collection::new(kind, integer(line)?)?;
                    if collection.count > 0 {
                        self.open.push(collection);
                        continue;
                    }
                    collection.into_value()?
                }
                _ => parse_redis_value(element)?,
            };
            loop {
                let Some(around) = self.open.last_mut() else {
                    return Ok(Some(value));
                };
                around.items.push(value);
                let is_whole = |around: &mut Collection| around.items.len() == around.count;
                let Some(whole) = self.open.pop_if(is_whole) else {
                    break;
                };
                value = whole.into_value()?;
            }
        }
        Ok(None)
    }

    /// True if a part of a reply has arrived, and not all of it.
    pub(super) fn is_inside_reply(&self) -> bool {
        self.start < self.end || !self.open.is_empty()
    }

    /// Finds the next element, if all of it has arrived. Returns what follows its line, up to the end of the element:
    /// nothing, unless it is a string.
    fn element(&mut self) -> RedisResult<Option<Range<usize>>> {
        let unread = &self.buffer[self.start..self.end];
        if unread.len() < self.needed.max(1) {
            return Ok(None);
        }
        let kind = unread[0];
        if self.open.len() >= DEEPEST {
            return Err(wrong("a reply is nested too deeply"));
        }
        // Before its line ends: another protocol may know no lines.
        if !b"$+:*_>%~|-!=(,#".contains(&kind) {
            return Err(wrong("a reply has an unknown type"));
        }
        let mut pairs = unread[self.searched..].windows(2);
        let Some(rest) = pairs.position(|pair| pair == b"\r\n") else {
            self.searched = unread.len() - 1;
            return Ok(None);
        };
        let body = self.searched + rest + 2;
        let mut end = body;
        if b"$!=".contains(&kind) {
            let length = integer(&unread[1..body - 2])?;
            if kind != b'$' || length >= 0 {
                let body_end = body.saturating_add(size(length, 1)?);
                match unread.get(body_end..) {
                    Some([b'\r', b'\n', ..]) => end = body_end + 2,
                    Some([] | [b'\r']) | None => {
                        self.needed = body_end.saturating_add(1);
                        return Ok(None);
                    }
                    Some(_) => return Err(wrong("a string is longer than its length")),
                }
            }
        }
        Ok(Some(body..end))
    }
}

/// A collection whose items arrive.
struct Collection {
    /// The first byte of its head.
    kind: u8,
    /// So many items belong to it.
    count: usize,
    items: Vec<Value>,
}

impl Collection {
    fn new(kind: u8, length: i64) -> RedisResult<Self> {
        let count = match kind {
            b'>' => size(length.max(0), 1)?,
            b'%' => size(length, 2)?,
            // The last item is the value to which the attributes belong.
            b'|' => size(length, 2)? + 1,
            _ => size(length, 1)?,
        };
        let items = Vec::with_capacity(count.min(EXPECTED));
        Ok(Self { kind, count, items })
    }

    fn into_value(self) -> RedisResult<Value> {
        if self.kind == b'*' {
            return Ok(Value::Array(self.items));
        }
        let mut items = self.items.into_iter();
        Ok(match self.kind {
            b'~' => Value::Set(items.collect()),
            b'|' => items.next_back().unwrap_or_default(),
            b'%' => Value::Map(iter::from_fn(|| items.next().zip(items.next())).collect()),
            _ => {
                let kind = match items.next() {
                    None => push_kind(""),
                    Some(Value::SimpleString(kind)) => push_kind(&kind),
                    Some(Value::BulkString(kind)) => push_kind(text(&kind)?),
                    Some(_) => return Err(wrong("a push has no kind")),
                };
                let data = items.collect();
                Value::Push { kind, data }
            }
        })
    }
}

fn push_kind(kind: &str) -> PushKind {
    match kind {
        "invalidate" => PushKind::Invalidate,
        "message" => PushKind::Message,
        "pmessage" => PushKind::PMessage,
        "smessage" => PushKind::SMessage,
        "unsubscribe" => PushKind::Unsubscribe,
        "punsubscribe" => PushKind::PUnsubscribe,
        "sunsubscribe" => PushKind::SUnsubscribe,
        "subscribe" => PushKind::Subscribe,
        "psubscribe" => PushKind::PSubscribe,
        "ssubscribe" => PushKind::SSubscribe,
        _ => PushKind::Other(kind.to_owned()),
    }
}

fn text(line: &[u8]) -> RedisResult<&str> {
    Ok(str::from_utf8(line).map_err(ParsingError::from)?)
}

fn integer(line: &[u8]) -> RedisResult<i64> {
    let digit = |number: i64, byte: &u8| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then(|| number * 10 + i64::from(digit))
    };
    // Almost every number: digits only, and too few to overflow.
    if matches!(line.len(), 1..=18)
        && let Some(number) = line.iter().try_fold(0, digit)
    {
        return Ok(number);
    }
    let number = text(line)?.trim().parse();
    number.map_err(|_| wrong("a number is not one"))
}

/// Returns the length of so many `units`.
fn size(length: i64, units: usize) -> RedisResult<usize> {
    let size = usize::try_from(length).ok();
    size.and_then(|size| size.checked_mul(units))
        .ok_or_else(|| wrong("a length is impossible"))
}

fn wrong(why: &str) -> RedisError {
    ParsingError::from(why).into()
}
