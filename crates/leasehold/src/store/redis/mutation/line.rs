//! Mutations of the queue and of its wakes.

use super::mutated::{Mutation, mutation};

pub(super) const LINE: &[Mutation] = &[
    mutation(
        "lua/claim-window-is-ttl",
        "A waiter is granted its whole TTL, not the claim window.",
        "grant(token, tonumber(ttl) < CLAIM_WINDOW and ttl or CLAIM_WINDOW, first",
        "grant(token, ttl, first",
    ),
    mutation(
        "lua/queue-skipped",
        "A client that finds the lock expired takes it, even if others wait.",
        "local value, kind = advance(owner)\n  if holder == owner then\n    return hold",
        "local value, kind = look()\n  if holder == owner then\n    return hold",
    ),
    mutation(
        "lua/last-come-first-served",
        "The lock goes to the last waiter.",
        "call('ZRANGE', QUEUE, at, at)[1]",
        "call('ZRANGE', QUEUE, '-1', '-1')[1]",
    ),
    mutation(
        "lua/busy-not-queued",
        "A client that should wait is refused and not queued.",
        "if channel ~= '' then",
        "if false then",
    ),
    mutation(
        "lua/arrival-by-clock",
        "The place in the queue is the time of arrival, even if the clock stops or goes back.",
        "math.max(behind and behind + 1 or 0, time())",
        "time()",
    ),
    mutation(
        "lua/refresh-moves-to-the-end",
        "A waiter that asks again goes to the end of the queue.",
        "if not rank then",
        "if true then",
    ),
    mutation(
        "lua/granted-stays-queued",
        "A waiter that is granted the lock keeps its place in the queue.",
        "drop(token)\n        grant(",
        "grant(",
    ),
    mutation(
        "lua/record-not-removed",
        "The record of a waiter remains after it was granted the lock.",
        "call('HDEL', WAITERS, token)",
        "",
    ),
    mutation(
        "lua/silent-waiter-granted",
        "A waiter counts as alive however long ago it last asked.",
        "token ~= caller and tonumber(seen_until) < now_ms",
        "false",
    ),
    mutation(
        "lua/numsub-not-asked",
        "A waiter counts as alive if any subscriber at all hears its channel.",
        "if not heard.err then",
        "if false then",
    ),
    mutation(
        "lua/place-lost-when-not-told",
        "A waiter that cannot be told loses its place.",
        "place = place + 1",
        "drop(token)",
    ),
    mutation(
        "lua/passed-over-blocks",
        "A waiter that cannot be told keeps those behind it from the lock.",
        "place = place + 1",
        "break",
    ),
    mutation(
        "lua/passed-over-stays",
        "A waiter that cannot be told keeps its place for as long as any other.",
        "if tonumber(seen_until) > limit then",
        "if false then",
    ),
    mutation(
        "lua/first-not-told",
        "A waiter that becomes the first behind a foreign holder is not told.",
        "if news and not told then",
        "if false then",
    ),
    mutation(
        "lua/short-claim-not-told",
        "A waiter that would sleep past the end of a short claim is not told of it.",
        "if tonumber(ttl) < SHORT_CLAIM then",
        "if false then",
    ),
    mutation(
        "lua/queue-without-expiry",
        "An abandoned queue is kept without end.",
        "call('PEXPIRE', QUEUE, QUEUE_MEMORY)\n    if holder and not contended",
        "if holder and not contended",
    ),
    mutation(
        "lua/wanted-once",
        "The holder is told that others wait only when the first of them joins.",
        "if ahead == 0 and holder then",
        "if ahead == 0 and holder and not rank then",
    ),
];
