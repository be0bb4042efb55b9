//! Scripts that are broken on purpose: the comparison has to notice each mistake.

use proptest::test_runner::TestError;

use super::node::Role;
use super::sequences;
use super::server::Redis;
use crate::store::redis::scripts::Scripts;

/// A mistake, in a sentence, and how a script gets it.
struct Mistake {
    what: &'static str,
    right: &'static str,
    wrong: &'static str,
}

const OF_A_LOCK: [Mistake; 23] = [
    Mistake {
        what: "a release deletes the key for any owner",
        right: "if holder == owner then\n    local as_believed",
        wrong: "if holder then\n    local as_believed",
    },
    Mistake {
        what: "a release frees the lock and serves no waiter",
        right: "pcall(serve)\n    end\n    return as_believed",
        wrong: "end\n    return as_believed",
    },
    Mistake {
        what: "an extension is carried out for a holder of another grant",
        right: "if holds(owner, believed) then\n    return hold",
        wrong: "if holder == owner then\n    return hold",
    },
    Mistake {
        what: "a grant sets the key without a TTL",
        right: "call('SET', NAME, written, 'PX', ttl)",
        wrong: "call('SET', NAME, written)",
    },
    Mistake {
        what: "a client that finds the lock expired takes it, even if others wait",
        right: "local value, kind = advance(owner)\n  if holder == owner then\n    return hold",
        wrong: "local value, kind = look()\n  if holder == owner then\n    return hold",
    },
    Mistake {
        what: "the lock goes to the last waiter",
        right: "call('ZRANGE', QUEUE, at, at)[1]",
        wrong: "call('ZRANGE', QUEUE, '-1', '-1')[1]",
    },
    Mistake {
        what: "a waiter counts as alive however long ago it last asked",
        right: "token ~= caller and tonumber(seen_until) < now_ms",
        wrong: "false",
    },
    Mistake {
        what: "a waiter that cannot be told keeps its place for as long as any other",
        right: "if tonumber(seen_until) > limit then",
        wrong: "if false then",
    },
    Mistake {
        what: "the holder is told that others wait only when the first of them joins",
        right: "if ahead == 0 and holder then",
        wrong: "if ahead == 0 and holder and not rank then",
    },
    Mistake {
        what: "the holder's value does not say that others wait",
        right: "call('SET', NAME, written .. '!', 'KEEPTTL')",
        wrong: "",
    },
    Mistake {
        what: "a fence is the time, even if the last one drawn was higher",
        right: "return last and last >= first and last + 1 or first",
        wrong: "return first",
    },
    Mistake {
        what: "a waiter that becomes the first behind a foreign holder is not told",
        right: "if news and not told then",
        wrong: "if false then",
    },
    Mistake {
        what: "a waiter that would sleep past the end of a short claim is not told of it",
        right: "if tonumber(ttl) < SHORT_CLAIM then",
        wrong: "if false then",
    },
    Mistake {
        what: "the counter is forgotten after a minute",
        right: "call('SET', COUNTER, digits(first + block - 1))",
        wrong: "call('SET', COUNTER, digits(first + block - 1), 'PX', '60000')",
    },
    Mistake {
        what: "the short form frees a lock of several fences that others wait for",
        right: "elseif string.byte(rest, -1) == 33 then",
        wrong: "elseif false then",
    },
    Mistake {
        what: "the short form deletes the key for any owner",
        right: "if value ~= own then",
        wrong: "if not value then",
    },
    Mistake {
        what: "the short form takes a name twice that comes twice in a batch",
        right: "'NX', 'PX', ARGV",
        wrong: "'PX', ARGV",
    },
    Mistake {
        what: "in the short form the counter goes on by one, however many fences a grant draws",
        right: "string.byte(fence, -1)) + block",
        wrong: "string.byte(fence, -1)) + 1",
    },
    Mistake {
        what: "the short way of a release hands on a lock that another owner holds",
        right: "string.sub(value, 1, #own) == own and string.sub(value, #own + 1) or ''",
        wrong: "string.match(value, '!$') or ''",
    },
    Mistake {
        what: "the short way grants to a waiter that is silent",
        right: "tonumber(seen_until) < math.floor(now / 1000)",
        wrong: "false",
    },
    Mistake {
        what: "the short way grants to a waiter that cannot be told",
        right: "call('PUBSUB', 'NUMSUB', channel)[2] == 0",
        wrong: "false",
    },
    Mistake {
        what: "the short way draws the time, even if the last fence was higher",
        right: "if last and last >= now and last <= 9007199254739967 then",
        wrong: "if false then",
    },
    Mistake {
        what: "the short way does not mark the value while more wait",
        right: "(others > 0 and '!' or '')",
        wrong: "''",
    },
];

const OF_A_NODE: [Mistake; 4] = [
    Mistake {
        what: "a node votes by the short form for a lock that others wait for",
        right: "call('EXISTS', KEYS[key + 1], KEYS[key + 2]) == 0",
        wrong: "call('EXISTS', KEYS[key + 1]) == 0",
    },
    Mistake {
        what: "a node votes for a fence below one that it has seen",
        right: "last < first and first <= most",
        wrong: "first <= most",
    },
    Mistake {
        what: "a late proposal shortens a renewed hold",
        right: "ttl = math.max(ttl, call('PTTL', NAME))",
        wrong: "",
    },
    Mistake {
        what: "a node that lost its memory votes at once",
        right: "if not remembers and from > now_ms then",
        wrong: "if false then",
    },
];

#[test]
fn each_broken_script_of_a_lock_is_noticed() {
    noticed(Role::Alone, &OF_A_LOCK);
}

#[test]
fn each_broken_script_of_a_node_is_noticed() {
    noticed(Role::Node, &OF_A_NODE);
}

fn noticed(role: Role, mistakes: &[Mistake]) {
    for Mistake { what, right, wrong } in mistakes {
        let redis = Redis::start_with(role, |counters| Scripts::broken(counters, right, wrong));
        // It ends with the first difference, and searches for no shorter way there.
        let compared = sequences(redis, 0);
        let is_noticed = matches!(compared, Err(TestError::Fail(..)));
        assert!(is_noticed, "nothing differs if {what}");
    }
}
