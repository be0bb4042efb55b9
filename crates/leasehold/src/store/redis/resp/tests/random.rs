//! Random replies, random damage and random commands, beside redis-rs.

use std::cell::RefCell;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};
use redis::{Cmd, RedisResult, parse_redis_value};

use super::super::{Command, Reader, USUAL};
use super::{Heard, collection, differs_on_purpose, expected, hear, string, without_attributes};

/// Gives bytes to a reader in pieces of these sizes, again and again.
fn hear_pieces(mut bytes: &[u8], sizes: &[usize]) -> Heard {
    let mut reader = Reader::default();
    let mut all = Heard::default();
    let mut sizes = sizes.iter().copied().cycle();
    while !bytes.is_empty() && !all.is_wrong {
        let size = sizes.next().unwrap_or(1).min(bytes.len());
        let piece = bytes.split_off(..size).unwrap_or_default();
        let heard = hear(&mut reader, piece);
        all.replies.extend(heard.replies);
        all.is_wrong = heard.is_wrong;
    }
    all
}

/// The bytes of a reply, with strings of up to `longest` bytes.
fn reply(longest: usize) -> impl Strategy<Value = Vec<u8>> {
    let lines = prop_oneof![
        "[+][a-zA-Z \r]{0,12}",
        "[-](ERR|MOVED|NOSCRIPT|X)( [a-z0-9:]{0,9})?",
        "[(]-?[0-9]{1,40}",
        "#[tf]",
        ":[-+]?[0-9]{1,18}",
        ",(-?inf|-?[0-9]{1,3}([.][0-9]{1,3})?([eE]-?[0-9]{1,3})?)",
        "_|[+]OK|[$]-1|[*]-1|~-1|>0",
    ];
    let leaf = prop_oneof![
        2 => lines.prop_map(|line| format!("{line}\r\n").into_bytes()),
        2 => vec(any::<u8>(), 0..40).prop_map(|body| string('$', "", &body)),
        1 => (0..longest).prop_map(|length| string('$', "", &vec![b'\r'; length])),
        1 => vec(any::<u8>(), 0..40).prop_map(|body| string('!', "ERR ", &body)),
        1 => vec(any::<u8>(), 0..40).prop_map(|body| string('=', "txt:", &body)),
    ];
    leaf.prop_recursive(6, 60, 8, |inner| {
        let pair = || [inner.clone(), inner.clone()].prop_map(|pair| pair.concat());
        prop_oneof![
            (select(vec!['*', '~']), vec(inner.clone(), 0..8))
                .prop_map(|(kind, items)| collection(kind, &items)),
            vec(pair(), 0..4).prop_map(|pairs| collection('%', &pairs)),
            (vec(pair(), 0..3), inner.clone()).prop_map(|(pairs, data)| {
                let attributes = collection('|', &pairs);
                [attributes, data].concat()
            }),
            ("[a-z]{1,9}|s?message", vec(inner.clone(), 0..4)).prop_map(|(kind, items)| {
                let items = [vec![string('$', "", kind.as_bytes())], items].concat();
                collection('>', &items)
            }),
        ]
    })
}

/// The sizes of the pieces in which bytes arrive.
fn sizes() -> impl Strategy<Value = Vec<usize>> {
    vec(prop_oneof![1..20_usize, 1..20_000_usize], 1..6)
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    })
}

#[test]
fn reader_returns_what_redis_rs_returns() {
    let input = (vec(reply(3 * USUAL / 2), 1..6), sizes());
    let outcome = runner(200).run(&input, |(replies, sizes)| {
        let each = replies.iter().map(|bytes| parse_redis_value(bytes));
        let expected: RedisResult<_> = each.map(|value| value.map(without_attributes)).collect();
        let heard = hear_pieces(&replies.concat(), &sizes);
        prop_assert!(!heard.is_wrong);
        prop_assert!(Ok(heard.replies) == expected);
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn reader_judges_spoiled_bytes_as_redis_rs_does() {
    let byte = select(&b"\r\n0129-+:$*%>~|_!=(,#x\xff "[..]);
    let input = (
        vec(reply(40), 1..4),
        vec((any::<Index>(), 0..6_u8, byte), 1..6),
        sizes(),
    );
    let wrong = RefCell::new(0);
    let outcome = runner(2_000).run(&input, |(replies, changes, sizes)| {
        let mut bytes = replies.concat();
        for (at, how, byte) in changes {
            let at = at.index(bytes.len() + 1);
            match how {
                0 => bytes.truncate(at),
                1 | 2 => bytes.insert(at, byte),
                _ if at < bytes.len() => bytes[at] = byte,
                _ => {}
            }
        }
        let heard = hear_pieces(&bytes, &sizes);
        if !differs_on_purpose(&bytes) {
            *wrong.borrow_mut() += u32::from(heard.is_wrong);
            let expected = expected(&bytes, &heard);
            prop_assert_eq!(heard, expected);
        }
        Ok(())
    });
    outcome.unwrap();
    let wrong = wrong.into_inner();
    assert!((500..1_800).contains(&wrong), "{wrong} were wrong");
}

#[test]
fn command_is_written_as_redis_rs_writes_it() {
    let word = prop_oneof![
        vec(any::<u8>(), 0..40).prop_map(Word::Bytes),
        vec(".{0,12}", 0..5).prop_map(Word::Joined),
        any::<u64>().prop_map(Word::Number),
        select(vec![0, 9, 10, 99, 100, u64::MAX]).prop_map(Word::Number),
    ];
    let command = RefCell::new(Command::default());
    let outcome = runner(500).run(&vec(word, 1..40), |words| {
        let mut command = command.borrow_mut();
        command.clear();
        let mut other = Cmd::new();
        for word in words {
            match word {
                Word::Bytes(bytes) => {
                    command.word(&bytes);
                    other.arg(bytes);
                }
                Word::Joined(parts) => {
                    let parts: Vec<_> = parts.iter().map(String::as_bytes).collect();
                    command.joined(&parts);
                    other.arg(parts.concat());
                }
                Word::Number(number) => {
                    command.number(number);
                    other.arg(number);
                }
            }
        }
        let mut written = b"before".to_vec();
        command.write(&mut written);
        prop_assert_eq!(
            written,
            [&b"before"[..], &other.get_packed_command()].concat()
        );
        Ok(())
    });
    outcome.unwrap();
}

#[derive(Debug, Clone)]
enum Word {
    Bytes(Vec<u8>),
    Joined(Vec<String>),
    Number(u64),
}
