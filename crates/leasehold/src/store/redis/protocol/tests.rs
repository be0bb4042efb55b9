//! Contended locks, and the messages of scripts. Arguments and answers are compared with core on real servers.

use super::*;
use crate::store::redis::tests::rows;

const TOKEN: &str = "lh1.00000000000000000000000000000005.0000000000000009.h:1:";

#[test]
fn contended_lock_uses_long_form_until_others_are_gone() {
    let name = LockName::new("orders:42").unwrap();
    let extend = |fence| Step::Extend {
        owner: Owner::new(1, ClientId::new(1), "h", 1, "").unwrap(),
        ttl: Ttl::new(Duration::from_secs(30)).unwrap(),
        fence,
    };
    let known = extend(Some(Fence::new(7)));
    let held = |queued| {
        Reply::Held(Held {
            fence: None,
            slot: None,
            block: Block::ONE,
            queued,
        })
    };
    let mut contended = Contended::default();
    assert_eq!(contended.kind(&name, &known), Kind::Settle);
    assert_eq!(contended.kind(&name, &extend(None)), Kind::SettleLong);
    contended.learn(&name, &held(1));
    assert_eq!(contended.kind(&name, &known), Kind::SettleLong);
    contended.learn(&name, &held(0));
    assert_eq!(contended.kind(&name, &known), Kind::Settle);
    for number in 0..=KNOWN {
        contended.is(&format!("n{number}"), true);
    }
    assert!(contended.names.len() <= KNOWN, "it forgets");
}

#[test]
fn the_messages_of_the_document_are_understood() {
    let mut verbs = Vec::new();
    for row in rows("messages") {
        let cells: Vec<&str> = row.iter().map(String::as_str).collect();
        let [message, verb, fence, at, queued, client, name] = cells[..] else {
            panic!("{row:?}")
        };
        let number = |text: &str| text.parse::<u64>().unwrap();
        verbs.push(verb.to_owned());
        let owner = match notice(message.as_bytes()) {
            Some(Notice::Granted { key, wake }) if verb == "granted" || verb == "slot" => {
                let slot = (verb == "slot").then_some(3);
                assert_eq!(wake.slot, slot);
                let said = (fence != "none").then(|| Fence::new(number(fence)));
                assert_eq!(wake.fence, said);
                assert_eq!(
                    (wake.at_us, wake.queued.into()),
                    (number(at), number(queued))
                );
                assert_eq!(key, name);
                wake.owner
            }
            Some(Notice::Wanted { key, owner }) if verb == "wanted" => {
                assert_eq!(key, name);
                owner
            }
            Some(Notice::First { owner }) if verb == "first" => owner,
            other => panic!("{row:?}: {other:?}"),
        };
        assert_eq!(owner.client().get(), number(client));
    }
    assert_eq!(verbs, ["granted", "granted", "slot", "wanted", "first"]);
}

#[cfg(feature = "entries")]
#[test]
fn the_end_of_a_load_names_its_key() {
    match notice("loaded größe 7 %".as_bytes()) {
        Some(Notice::LoadEnded { key }) => assert_eq!(key, "größe 7 %"),
        other => panic!("{other:?}"),
    }
    assert!(notice(b"loaded").is_none());
}

#[test]
fn what_has_another_form_is_no_notice() {
    for other in [
        "",
        "granted",
        &format!("granted 64 7000001 2 {TOKEN}"),
        &format!("granted x 7000001 2 {TOKEN} key"),
        "granted 64 7000001 2 someone key",
        &format!("slot 64 7000001 2 {TOKEN} key"),
        &format!("slot 0 64 7000001 2 {TOKEN} key"),
        &format!("slot 1001 64 7000001 2 {TOKEN} key"),
        "wanted someone key",
        "first someone key",
        &format!("granted -1 7000001 2 {TOKEN} key"),
        // The form before the verbs were introduced.
        &format!("64 {TOKEN} key"),
    ] {
        assert!(notice(other.as_bytes()).is_none(), "{other}");
    }
    assert!(notice(b"wanted \xff key").is_none());
}

#[test]
fn one_answer_for_all_is_done_to_a_settlement_and_nothing_else() {
    let owner = Owner::new(1, ClientId::new(1), "h", 1, "").unwrap();
    let (keep, fence) = (None, Some(Fence::new(7)));
    let release = Step::Release { owner, keep, fence };
    let steps = ["a", "b"].map(|name| (LockName::new(name).unwrap(), release.clone()));
    let answered = |kind, said: &str| {
        let (mut answers, said) = (0, Value::BulkString(said.as_bytes().to_vec()));
        let known = decode(kind, &said, steps.iter(), |answer| {
            assert_eq!(answer, Some(Ok(Reply::Released)));
            answers += 1;
        });
        known.map(|()| answers)
    };
    assert_eq!(answered(Kind::Settle, "done"), Some(2));
    for (kind, said) in [
        (Kind::Settle, "done/2"),
        (Kind::Settle, "other"),
        (Kind::Acquire, "done"),
        (Kind::AcquireLong, "7"),
        (Kind::SettleLong, "done"),
        // Only of one step.
        (Kind::SettleLong, "released"),
    ] {
        assert_eq!(answered(kind, said), None, "{kind:?} {said}");
    }
}

#[test]
fn the_answer_to_acquires_names_the_first_fence_and_what_did_not_fit() {
    let acquire = |(at, fences)| Step::Acquire {
        owner: Owner::new(at, ClientId::new(1), "h", 1, "").unwrap(),
        mode: Mode::Exclusive,
        ttl: Ttl::new(Duration::from_secs(30)).unwrap(),
        block: Block::nearest(fences),
        wait: None,
    };
    let name = LockName::new("a").unwrap();
    let steps = [(1, 1), (2, 64), (3, 1)].map(|step| (name.clone(), acquire(step)));
    let fences = |said: &str| {
        let (mut fences, said) = (Vec::new(), Value::BulkString(said.as_bytes().to_vec()));
        let known = decode(Kind::Acquire, &said, steps.iter(), |answer| {
            fences.push(answer.map(|reply| match reply {
                Ok(Reply::Held(held)) => held.fence.unwrap().get(),
                other => panic!("{other:?}"),
            }));
        });
        known.map(|()| fences)
    };
    assert_eq!(fences("7"), Some(vec![Some(7), Some(8), Some(72)]));
    assert_eq!(fences("7 2"), Some(vec![Some(7), None, Some(8)]));
    assert_eq!(fences("7 1 2 3"), Some(vec![None, None, None]));
    let last = "9007199254740926";
    assert!(fences(last).is_some());
    for said in [
        "",
        "x",
        "-7",
        "7 ",
        "7 0",
        "7 4",
        "7 2 2",
        "7 2 x",
        "9007199254740927",
        "9007199254740992",
    ] {
        assert_eq!(fences(said), None, "{said:?}");
    }
}

/// Reads a reply of a long form to one step.
fn read(reply: &Value) -> Option<RedisResult<Reply>> {
    long_reply(reply, &LockName::new("a").unwrap())
}

fn bulk(text: &str) -> Value {
    Value::BulkString(text.into())
}

/// The view of a holder, with these elements after those of a mutex.
fn seen(beside: &[&str]) -> Value {
    let mut view = vec![
        bulk("string"),
        bulk(TOKEN),
        Value::Int(9),
        bulk("7"),
        Value::Int(-1),
    ];
    view.extend(beside.iter().map(|word| bulk(word)));
    Value::Array(view)
}

#[test]
fn a_view_says_how_the_holder_holds() {
    let of = |beside: &[&str]| match read(&Value::Array(vec![bulk("not-held"), seen(beside)])) {
        Some(Ok(Reply::NotHeld(Some(holder)))) => Some((holder.mode, holder.slot)),
        None => None,
        other => panic!("{other:?}"),
    };
    let slots = Mode::Slot(Slots::new(4).unwrap());
    assert_eq!(of(&[]), Some((Mode::Exclusive, None)));
    assert_eq!(of(&["shared"]), Some((Mode::Shared, None)));
    assert_eq!(of(&["slot/4", "2"]), Some((slots, Some(2))));
    let others: [&[&str]; 8] = [
        &["exclusive"],
        &["shared", "2"],
        &["slot/4"],
        &["slot/4", "0"],
        &["slot/4", "x"],
        &["slot/0", "1"],
        &["reader"],
        &["slot/4", "2", "3"],
    ];
    for other in others {
        assert_eq!(of(other), None, "{other:?}");
    }
}

#[test]
fn replies_of_several_holders_are_read() {
    let slot = |said| match read(&bulk(said)) {
        Some(Ok(Reply::Held(held))) => Some((held.slot, held.queued)),
        None => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(slot("held 7 1 3"), Some((None, 3)));
    assert_eq!(slot("held 7 1 3 2"), Some((Some(2), 3)));
    for other in [
        "held 7 1",
        "held 7 1 3 0",
        "held 7 1 3 x",
        "held 7 1 3 2 1",
        "held 7 1 3 ",
    ] {
        assert_eq!(slot(other), None, "{other}");
    }
    let busy = |others: &[Value]| {
        let mut reply = vec![
            bulk("busy"),
            Value::Int(0),
            Value::Int(9),
            bulk("5"),
            seen(&["shared"]),
        ];
        reply.extend_from_slice(others);
        match read(&Value::Array(reply)) {
            Some(Ok(Reply::Busy(busy))) => Some(busy.others),
            None => None,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(busy(&[]), Some(0));
    assert_eq!(busy(&[Value::Int(2)]), Some(2));
    assert_eq!(busy(&[bulk("some")]), None);
    assert_eq!(busy(&[Value::Int(2), Value::Int(2)]), None);
    let inspected = |several: &[Value]| {
        let queue = Value::Array(Vec::new());
        let mut reply = vec![bulk("seen"), seen(&["shared"]), queue, bulk("5")];
        reply.extend_from_slice(several);
        match read(&Value::Array(reply)) {
            Some(Ok(Reply::Seen(seen))) => Some((seen.others.len(), seen.omitted)),
            None => None,
            other => panic!("{other:?}"),
        }
    };
    let others = Value::Array(vec![seen(&["shared"]), seen(&["shared"])]);
    assert_eq!(inspected(&[]), Some((0, 0)));
    assert_eq!(inspected(&[others.clone(), Value::Int(7)]), Some((2, 7)));
    assert_eq!(inspected(&[others]), None);
    let none = Value::Array(vec![Value::Array(Vec::new())]);
    assert_eq!(inspected(&[none, Value::Int(0)]), None);
}

/// A mark as the node keeps it.
fn mark(text: &str) -> Result<Option<WrittenMark>, NotAMark> {
    WrittenMark::in_reply(Ok(Value::BulkString(text.as_bytes().to_vec())))
}

#[test]
fn mark_is_read_as_it_is_written_or_not_at_all() {
    for text in [
        "3 60000 0 0123456789abcdef",
        "9 10 1700000000000 fedcba9876543210 young",
    ] {
        let read = mark(text).unwrap().unwrap();
        assert_eq!(read.to_string(), text);
        assert_eq!(read.is_young, text.ends_with("young"));
    }
    for garbage in [
        "",
        "hello",
        "3 60000 0",
        "3 60000 0 0123456789abcdef old",
        "3 60000 0 0123456789abcdef young ",
        "3 60000 0 0123456789abcdeg",
        "3 60000 0 0123456789abcde",
        "3 060000 0 0123456789abcdef",
        "+3 60000 0 0123456789abcdef",
        "3 0 0 0123456789abcdef",
    ] {
        assert_eq!(mark(garbage), Err(NotAMark), "{garbage:?}");
    }
    let not_utf8 = Value::BulkString(vec![0xff]);
    assert_eq!(WrittenMark::in_reply(Ok(not_utf8)), Err(NotAMark));
    assert_eq!(WrittenMark::in_reply(Ok(Value::Nil)), Ok(None));
    let refused = |line: &str| {
        let error = parse_redis_value(line.as_bytes()).and_then(Value::extract_error);
        WrittenMark::in_reply(error)
    };
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
    assert_eq!(refused(wrong_type), Err(NotAMark));
    assert_eq!(
        refused("-NOPERM this user has no permissions\r\n"),
        Ok(None)
    );
}

#[test]
fn mark_is_adopted_only_by_a_server_that_never_was_a_replica() {
    let longest_ttl = Ttl::new(Duration::from_secs(60)).unwrap();
    let terms = QuorumTerms {
        nodes: 3,
        longest_ttl,
    };
    let adopted = |text: &str, durable, offset| {
        let seen = mark(text).unwrap().unwrap();
        let node = NodeTerms { terms, durable };
        let adopted = seen.adopted(node, "0123456789abcdef", offset);
        adopted.map(|adopted| adopted.to_string())
    };
    let (own, former) = ("3 60000 0 0123456789abcdef", "3 60000 0 fedcba9876543210");
    assert_eq!(adopted(own, true, Some("-1")), None);
    assert_eq!(adopted(former, true, Some("-1")).as_deref(), Some(own));
    assert_eq!(adopted(former, true, Some("4711")), None);
    assert_eq!(adopted(former, true, None), None);
    assert_eq!(adopted(former, false, Some("-1")), None);
    // Of another quorum.
    for other in ["5 60000 0 fedcba9876543210", "3 50000 0 fedcba9876543210"] {
        assert_eq!(adopted(other, true, Some("-1")), None, "{other}");
    }
    let young = adopted("3 60000 17 fedcba9876543210 young", true, Some("-1"));
    assert_eq!(young.as_deref(), Some("3 60000 17 0123456789abcdef young"));
}

#[test]
fn each_slot_has_its_counter_and_channel() {
    for row in rows("slots") {
        let slot = slot(&row[0]);
        assert_eq!(slot.to_string(), row[1], "{row:?}");
        let channel = slot_channel(&channel(ClientId::new(9)), slot);
        assert_eq!([slot_counter(slot), channel], [row[2].as_str(), &row[3]]);
    }
}
