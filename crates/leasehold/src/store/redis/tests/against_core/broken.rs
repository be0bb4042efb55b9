//! Scripts that are broken on purpose: the comparison has to notice each mistake.

use proptest::test_runner::TestError;

use super::model::Role;
use super::sequences;
use super::server::Redis;
use super::steps::Kinds;
use crate::store::redis::scripts::Scripts;

/// The right text of a script, and a mistake in its place.
type Mistake = (&'static str, &'static str);

const OF_A_LOCK: [Mistake; 27] = [
    // A release deletes the key for any owner.
    (
        "if holder == owner then\n    local as_believed",
        "if holder then\n    local as_believed",
    ),
    // A release frees the lock and serves no waiter.
    (
        "pcall(serve, nil, nil, nil, these)\n    end\n    return as_believed",
        "end\n    return as_believed",
    ),
    // An extension is carried out for a holder of another grant.
    (
        "if holds(owner, believed, these) then\n    return hold",
        "if holder == owner then\n    return hold",
    ),
    // A grant sets the key without a TTL.
    (
        "call('SET', NAME, written, 'PX', ttl)",
        "call('SET', NAME, written)",
    ),
    // A client that finds the lock expired takes it, even if others wait.
    (
        "local value, kind = advance(owner)\n  local these",
        "local value, kind = look()\n  local these",
    ),
    // The lock goes to the last waiter.
    (
        "call('ZRANGE', QUEUE, at, at)[1]",
        "call('ZRANGE', QUEUE, '-1', '-1')[1]",
    ),
    // A waiter counts as alive however long ago it last asked.
    ("token ~= caller and tonumber(seen_until) < now_ms", "false"),
    // A waiter that cannot be told keeps its place for as long as any other.
    ("if tonumber(seen_until) > limit then", "if false then"),
    // The holder is told that others wait only when the first of them joins.
    (
        "if ahead == 0 and holder then",
        "if ahead == 0 and holder and not rank then",
    ),
    // The holder's value does not say that others wait.
    ("call('SET', NAME, written .. '!', 'KEEPTTL')", ""),
    // A fence is the time, even if the last one drawn was higher.
    (
        "return last and last >= first and last + 1 or first",
        "return first",
    ),
    // Any number in the counter is a fence, whatever else is there.
    (
        "last = last and not string.find(last, '%D') and tonumber(last)\n  return",
        "last = last and tonumber(last)\n  return",
    ),
    // A waiter that becomes the first behind a foreign holder is not told.
    ("if news and not told then", "if false then"),
    // A waiter that would sleep past the end of a short claim is not told of it.
    ("if tonumber(ttl) < SHORT_CLAIM then", "if false then"),
    // The counter is forgotten after a minute.
    (
        "call('SET', COUNTER, digits(first + block - 1))",
        "call('SET', COUNTER, digits(first + block - 1), 'PX', '60000')",
    ),
    // The short form frees a lock of several fences that others wait for.
    ("elseif is_alone then", "elseif true then"),
    // The short form deletes the key for any owner.
    ("if value ~= own then", "if not value then"),
    // It frees all locks of a batch together, whoever holds them.
    ("are_there and all == ARGV[1]", "are_there"),
    // The short form takes a name twice that comes twice in a batch.
    ("'NX', 'PX', ttl", "'PX', ttl"),
    // In the short form the counter goes on by one, however many fences a grant draws.
    ("ones = ones + block", "ones = ones + 1"),
    // The short form forgets a ten of the fences.
    ("if tens > 57 then", "if false then"),
    // The counter forgets all fences of a batch but the first.
    (
        "drawn == 1 and first or string.format('%.0f', first + drawn - 1)",
        "first",
    ),
    // The short way of a release hands on a lock that another owner holds.
    (
        "string.sub(value, 1, #own) == own and string.sub(value, #own + 1) or ''",
        "string.match(value, '!$') or ''",
    ),
    // The short way grants to a waiter that is silent.
    (
        "tonumber(seen_until) < clock[1] * 1000 + math.floor(clock[2] / 1000)",
        "false",
    ),
    // The short way grants to a waiter that cannot be told.
    ("call('PUBSUB', numsub, channel)[2] == 0", "false"),
    // The short way draws the time, even if the last fence was higher.
    ("fences = string.format('%.0f', last + 1)", ""),
    // The short way does not mark the value while more wait.
    ("(others > 0 and '!' or '')", "''"),
];

const OF_A_NODE: [Mistake; 5] = [
    // A release by the fence of the grant means no hold that a repair has raised.
    ("local is_raised = TERMS", "local is_raised = false"),
    // A node votes by the short form for a lock that others wait for.
    (
        "call('EXISTS', KEYS[key + 1], KEYS[key + 2]) == 0",
        "call('EXISTS', KEYS[key + 1]) == 0",
    ),
    // A node votes for a fence below one that it has seen.
    ("last < first and first <= most", "first <= most"),
    // A late proposal shortens a renewed hold.
    ("these and these.left() or call('PTTL', NAME)", "0"),
    // A node that lost its memory votes at once.
    ("if not remembers and from > now_ms then", "if false then"),
];

const OF_SEVERAL: [Mistake; 20] = [
    // A reader passes a writer that waits.
    (
        "(not these or these.blocked or not these.admits(mode))",
        "(not these or not these.admits(mode))",
    ),
    // A slot is granted beside readers.
    (
        "return mode == these.mode\n",
        "return mode == these.mode or of and these.holders < tonumber(of)\n",
    ),
    // Each reader draws a fence.
    (
        "these.phase or format('%.0f', first), 1",
        "format('%.0f', next_fence()), 1",
    ),
    // One more than the slots hold.
    (
        "these.holders < tonumber(of)",
        "these.holders <= tonumber(of)",
    ),
    // A slot has the next number, not the smallest one that is free.
    (
        "while all[free] do",
        "while all[free] or free <= these.holders do",
    ),
    // The marker lasts as long as the first holder.
    ("elseif until_ms > last_end then", "elseif false then"),
    // A holder that extends its hold keeps its end.
    (
        "call('ZADD', QUEUE, format('-%.0f', now_ms + ttl), holder)",
        "",
    ),
    // The last holder that leaves keeps the lock.
    (
        "return these\n    end\n    call('DEL', NAME)",
        "return these\n    end",
    ),
    // The record of a slot stays when its holder leaves.
    ("call('HDEL', WAITERS, holder)", ""),
    // The record of a slot stays when its holder has expired.
    ("call('HDEL', WAITERS, unpack(gone))", ""),
    // A break ends all slots.
    (
        "if holds(token, seen, these) then",
        "if holds(token, false, these) then",
    ),
    // Of several waiters that are admitted, one is granted the lock.
    ("if is_last then", "if true then"),
    // One client is told that another waits.
    ("math.min(holders, 16) - 1", "0"),
    // A waiter for a slot asks at the last end.
    ("these.view(holders - 1)", "these.view(0)"),
    // A waiter that leaves lets in nobody.
    (
        "-- Those behind it may be admitted.\n      pcall(serve, nil, nil, nil, these)",
        "",
    ),
    // The keys beside the lock do not outlast the holders.
    ("if call('PTTL', QUEUE) < left or", "if false and"),
    // Waiters shorten the time for which holders are remembered.
    (
        "call('PEXPIRE', QUEUE, these and these.memory or QUEUE_MEMORY)\n    if holder",
        "call('PEXPIRE', QUEUE, QUEUE_MEMORY)\n    if holder",
    ),
    // Holders whose lock was overwritten stand before those that wait.
    ("if not is_ours and tonumber", "if false and tonumber"),
    // One of several that keeps its hold does not shorten it.
    ("these.renew(keep)", ""),
    // The first of several holders is shown twice.
    ("= value.view(rank)", "= value.view(0)"),
];

const OF_READERS: [Mistake; 9] = [
    // A reader has to be above the numbers of the others.
    ("least = last and of_phase or math.max(of_phase, least)", ""),
    // A reader joins with any number.
    (
        "local least, most = bounds(floor, these)",
        "local least, most = 0, bounds(floor, these) + AHEAD",
    ),
    // The number of a reader lowers the counter.
    ("if not last or last < number then", "if true then"),
    // The number of a reader is not counted.
    ("if not last or last < number then", "if false then"),
    // A late proposal shortens a renewed hold of a reader.
    ("these and these.left() or", "these and 0 or"),
    // All readers of a phase are known by one number.
    (
        "'^shared (%d+)$') or these.phase",
        "'^shared (%d+)$') and these.phase or these.phase",
    ),
    // A vote that is raised keeps its number.
    ("these.vote(proposed)", ""),
    // The record of a vote stays when its reader leaves.
    ("if these.number or TERMS then", "if these.number then"),
    // A refused renewal names the last to end, and not the hold of the owner that asks.
    ("these.view(call('ZRANK', QUEUE, owner))", "false"),
];

#[test]
fn each_broken_script_of_readers_at_a_node_is_noticed() {
    noticed(Role::Node, Kinds::ReadWrite, &OF_READERS);
}

#[test]
fn each_broken_script_of_several_holders_is_noticed() {
    noticed(Role::Alone, Kinds::OfSeveral, &OF_SEVERAL);
}

#[test]
fn each_broken_script_of_a_lock_is_noticed() {
    noticed(Role::Alone, Kinds::OfOne, &OF_A_LOCK);
}

#[test]
fn each_broken_script_of_a_node_is_noticed() {
    noticed(Role::Node, Kinds::OfOne, &OF_A_NODE);
}

fn noticed(role: Role, kinds: Kinds, mistakes: &[Mistake]) {
    for (right, wrong) in mistakes {
        let redis = Redis::start_with(role, |counters| Scripts::broken(counters, right, wrong));
        // It ends with the first difference, and searches for no shorter way there.
        let compared = sequences(redis, kinds, 0);
        let is_noticed = matches!(compared, Err(TestError::Fail(..)));
        assert!(
            is_noticed,
            "nothing differs with {wrong:?} in place of {right:?}"
        );
    }
}
