//! The codec beside the parser and the commands of redis-rs.

mod random;

use redis::{ErrorKind, Parser};

use super::*;

/// A message of each type and of each special form.
const EACH: [&str; 34] = [
    "+OK\r\n",
    "+\r\n",
    "+a\rb\nc\r\n",
    "-ERR no\r\n",
    "-MOVED 1 a:1\r\n",
    "-OTHER\r\n",
    ":-42\r\n",
    ":9223372036854775807\r\n",
    "$-1\r\n",
    "$0\r\n\r\n",
    "$6\r\na\r\nb\rc\r\n",
    "*-1\r\n",
    "*0\r\n",
    "*3\r\n$1\r\na\r\n*2\r\n:1\r\n_\r\n+OK\r\n",
    "%0\r\n",
    "%2\r\n+a\r\n:1\r\n$1\r\nb\r\n*0\r\n",
    "~-1\r\n",
    "~2\r\n:1\r\n:2\r\n",
    ">-1\r\n",
    ">0\r\n",
    ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$4\r\nword\r\n",
    ">1\r\n+smessage\r\n",
    ">2\r\n+news\r\n:1\r\n",
    "_\r\n",
    ",1.5e3\r\n",
    ",-inf\r\n",
    "#t\r\n",
    "#f\r\n",
    "(3492890328409238509324850943850943825024385\r\n",
    "=8\r\ntxt:a\r\nb\r\n",
    "=5\r\nnew:x\r\n",
    "!9\r\nSYNTAX a \r\n",
    "|1\r\n+ttl\r\n:9\r\n$1\r\na\r\n",
    "*2\r\n|2\r\n+a\r\n*1\r\n:1\r\n+b\r\n:2\r\n|0\r\n:7\r\n~1\r\n|1\r\n:1\r\n:2\r\n:3\r\n",
];

/// The replies in the bytes of a connection, and whether wrong bytes follow them.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    replies: Vec<Value>,
    is_wrong: bool,
}

/// Gives bytes to a reader and takes its replies.
fn hear(reader: &mut Reader, mut bytes: &[u8]) -> Heard {
    let mut heard = Heard::default();
    while !bytes.is_empty() {
        let space = reader.space();
        assert!(space.len() >= LEAST);
        let piece = bytes
            .split_off(..bytes.len().min(space.len()))
            .unwrap_or_default();
        space[..piece.len()].copy_from_slice(piece);
        reader.filled(piece.len());
        loop {
            match reader.next() {
                Ok(Some(value)) => heard.replies.push(value),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Parse, "{error}");
                    heard.is_wrong = true;
                    return heard;
                }
            }
        }
    }
    heard
}

/// Reads these bytes with redis-rs. It notices some wrong bytes only when another byte follows; where the reader has
/// noticed them before, they must be wrong whichever byte follows.
fn expected(bytes: &[u8], reader_said: &Heard) -> Heard {
    let mut heard = parsed(bytes);
    if reader_said.is_wrong {
        let mut next = b"x\r\n+1".iter();
        heard.is_wrong |= next.all(|&next| parsed(&[bytes, &[next]].concat()).is_wrong);
    }
    heard
}

fn parsed(mut bytes: &[u8]) -> Heard {
    let mut parser = Parser::new();
    let mut replies = Vec::new();
    loop {
        match parser.parse_value(&mut bytes) {
            Ok(value) => replies.push(without_attributes(value)),
            Err(error) => {
                let is_wrong = error.kind() == ErrorKind::Parse;
                return Heard { replies, is_wrong };
            }
        }
    }
}

fn without_attributes(value: Value) -> Value {
    let all = |values: Vec<Value>| values.into_iter().map(without_attributes).collect();
    match value {
        Value::Attribute { data, .. } => without_attributes(*data),
        Value::Array(values) => Value::Array(all(values)),
        Value::Set(values) => Value::Set(all(values)),
        Value::Push { kind, data } => Value::Push {
            kind,
            data: all(data),
        },
        Value::Map(pairs) => {
            let pair = |(key, value)| (without_attributes(key), without_attributes(value));
            Value::Map(pairs.into_iter().map(pair).collect())
        }
        value => value,
    }
}

fn string(kind: char, prefix: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("{kind}{}\r\n{prefix}", prefix.len() + body.len());
    [head.as_bytes(), body, b"\r\n"].concat()
}

fn collection(kind: char, items: &[Vec<u8>]) -> Vec<u8> {
    let head = format!("{kind}{}\r\n", items.len());
    [head.into_bytes(), items.concat()].concat()
}

/// For a string of a negative length, redis-rs waits for ever. It takes no attributes before the kind of a push.
fn differs_on_purpose(bytes: &[u8]) -> bool {
    let lines: Vec<_> = bytes.split(|&byte| byte == b'\n').collect();
    let is_negative = |line: &[u8]| {
        line.split_first().is_some_and(|(kind, length)| {
            b"!=".contains(kind) && integer(length).is_ok_and(|length| length < 0)
        })
    };
    let mut pairs = lines.windows(2);
    lines.iter().any(|line| is_negative(line))
        || pairs.any(|pair| pair[0].starts_with(b">") && pair[1].starts_with(b"|"))
}

#[test]
fn message_may_be_cut_at_each_byte() {
    for message in EACH {
        let value = without_attributes(parse_redis_value(message.as_bytes()).unwrap());
        let twice = format!("{message}{message}");
        for at in 0..message.len() {
            let mut reader = Reader::default();
            let first = hear(&mut reader, &twice.as_bytes()[..at]);
            assert_eq!(first, Heard::default(), "{message:?} at {at}");
            assert_eq!(reader.is_inside_reply(), at > 0, "{message:?} at {at}");
            let rest = hear(&mut reader, &twice.as_bytes()[at..]);
            assert_eq!(
                rest.replies,
                [value.clone(), value.clone()],
                "{message:?} at {at}"
            );
            assert!(!reader.is_inside_reply(), "{message:?} at {at}");
        }
    }
}

#[test]
fn odd_line_is_judged_as_redis_rs_does() {
    let lines = [
        "",
        "0",
        "-0",
        "+1",
        " 1 ",
        "01",
        "1",
        "1x",
        "x",
        "-1",
        "-2",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "1\u{a0}",
        "t",
    ];
    for kind in "+-:$*%>~|_!=(,#x\r\n\0H".chars() {
        for line in lines {
            for rest in ["", "+a\r\n+b\r\n+c\r\n", "a\r\n", ":1\r\n", "\r\n", "aa"] {
                let bytes = format!("{kind}{line}\r\n{rest}");
                let heard = hear(&mut Reader::default(), bytes.as_bytes());
                if differs_on_purpose(bytes.as_bytes()) {
                    assert!(heard.is_wrong, "{bytes:?}");
                } else {
                    assert_eq!(heard, expected(bytes.as_bytes(), &heard), "{bytes:?}");
                }
            }
        }
    }
    for bytes in [&b"+\xff\r\n"[..], b":\xff\r\n", b"_\xff\r\n", b"-\xff\r\n"] {
        let heard = hear(&mut Reader::default(), bytes);
        assert_eq!(heard, expected(bytes, &heard));
    }
}

#[test]
fn first_byte_of_another_protocol_and_no_number_are_known() {
    for bytes in [&b"H"[..], b"\x15", b"\0", b"\n"] {
        let heard = hear(&mut Reader::default(), bytes);
        assert!(heard.is_wrong, "{}", bytes.escape_ascii());
    }
    let heard = hear(&mut Reader::default(), b",nan\r\n");
    assert!(matches!(heard.replies[..], [Value::Double(double)] if double.is_nan()));
}

#[test]
fn value_may_be_nested_as_deeply_as_in_redis_rs() {
    for around in ["*1\r\n", "~1\r\n", "%1\r\n+a\r\n", ">2\r\n+a\r\n", "|0\r\n"] {
        for (levels, is_wrong) in [(DEEPEST - 1, false), (DEEPEST, true)] {
            let bytes = [&around.repeat(levels), ":1\r\n"].concat();
            let heard = hear(&mut Reader::default(), bytes.as_bytes());
            assert_eq!(heard.is_wrong, is_wrong, "{around:?}");
            assert_eq!(heard, expected(bytes.as_bytes(), &heard), "{around:?}");
        }
    }
}

#[test]
fn big_string_is_looked_at_only_when_it_is_whole() {
    let length = 10_000_000;
    let bytes = string('$', "", &vec![7; length]);
    let mut reader = Reader::default();
    let mut moves = 0;
    let mut pieces = bytes.chunks(LEAST).peekable();
    while let Some(piece) = pieces.next() {
        let size = reader.buffer.len();
        let heard = hear(&mut reader, piece);
        moves += u32::from(reader.buffer.len() != size);
        if pieces.peek().is_some() {
            assert_eq!(heard, Heard::default());
            assert_eq!(
                reader.needed,
                bytes.len() - 1,
                "until then it waits for bytes"
            );
        } else {
            assert_eq!(heard.replies, [Value::BulkString(vec![7; length])]);
        }
    }
    assert!(moves < 10, "{moves}");
    assert!(reader.buffer.len() < 3 * length);
    assert_eq!(reader.space().len(), USUAL);
    assert_eq!(reader.buffer.capacity(), USUAL);
}

#[test]
fn item_is_taken_as_soon_as_it_has_arrived() {
    let item = string('$', "", b"0123456789");
    let count = 100_000;
    let bytes = collection('*', &vec![item.clone(); count]);
    let mut reader = Reader::default();
    let mut replies = Vec::new();
    for piece in bytes.chunks(LEAST) {
        replies.extend(hear(&mut reader, piece).replies);
        assert!(reader.end - reader.start < item.len());
    }
    let value = Value::BulkString(b"0123456789".to_vec());
    assert_eq!(replies, [Value::Array(vec![value; count])]);
    assert_eq!(reader.buffer.len(), USUAL);
}

#[test]
fn long_line_is_searched_once() {
    let bytes = format!("+{}\r\n", "\r ".repeat(500_000));
    let mut reader = Reader::default();
    let mut arrived = 0;
    let mut replies = Vec::new();
    for piece in bytes.as_bytes().chunks(LEAST) {
        replies.extend(hear(&mut reader, piece).replies);
        arrived += piece.len();
        if arrived < bytes.len() {
            assert_eq!(reader.searched, arrived - 1);
        }
    }
    let line = &bytes[1..bytes.len() - 2];
    assert_eq!(replies, [Value::SimpleString(line.to_owned())]);
}

#[test]
fn head_alone_takes_little_memory() {
    for kind in "$*%>~|!=".chars() {
        let bytes = format!("{kind}9223372036854775807\r\n").repeat(99);
        let mut reader = Reader::default();
        assert_eq!(hear(&mut reader, bytes.as_bytes()), Heard::default());
        assert!(reader.is_inside_reply());
        reader.space();
        assert_eq!(reader.buffer.len(), USUAL);
        let items = reader.open.iter().map(|open| open.items.capacity());
        assert!(items.sum::<usize>() <= DEEPEST * EXPECTED);
    }
}

#[test]
fn buffer_shrinks_with_the_beginning_of_the_next_reply() {
    let mut reader = Reader::default();
    let big = string('$', "", &vec![7; 5 * USUAL]);
    let heard = hear(&mut reader, &[&big[..], b"$3\r\na"].concat());
    assert_eq!(heard.replies.len(), 1);
    assert!(reader.buffer.len() > USUAL);
    reader.space();
    assert_eq!(reader.buffer.len(), USUAL);
    let heard = hear(&mut reader, b"bc\r\n");
    assert_eq!(heard.replies, [Value::BulkString(b"abc".to_vec())]);
}

#[test]
fn array_of_a_subscribed_resp2_connection_is_a_push() {
    let said = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$4\r\nword\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";
    let in_resp3: Vec<u8> = [&b">"[..], &said[1..]].concat();
    let mut reader = Reader {
        arrays_are_pushes: true,
        ..Reader::default()
    };
    let heard = hear(&mut reader, said);
    assert_eq!(
        heard.replies[0],
        hear(&mut Reader::default(), &in_resp3).replies[0]
    );
    let is_push = |value: &Value| matches!(value, Value::Push { .. });
    assert!(heard.replies.iter().all(is_push), "{heard:?}");
    // What it is told before is no array, and an array inside one is none.
    let others = hear(&mut reader, b"+OK\r\n-ERR no\r\n:1\r\n");
    assert!(!others.replies.iter().any(is_push), "{others:?}");
}
