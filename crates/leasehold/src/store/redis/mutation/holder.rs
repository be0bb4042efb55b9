//! Mutations of acquire, extend, release and break: the holder and its deadline.

use super::mutated::{Mutation, mutation};

pub(super) const HOLDER: &[Mutation] = &[
    mutation(
        "lua/release-without-owner-check",
        "A release deletes the key for any owner.",
        "if holder == owner then\n    local as_believed",
        "if holder then\n    local as_believed",
    ),
    mutation(
        "lua/release-deletes-before-check",
        "A release deletes the key before it checks the owner.",
        "local function release(owner, keep, believed)\n  local value, kind = advance()",
        "local function release(owner, keep, believed)\n  local value, kind = advance()\n  call('DEL', NAME)",
    ),
    mutation(
        "lua/release-serves-nobody",
        "A release frees the lock and wakes no waiter.",
        "pcall(serve)\n    end\n    return as_believed",
        "end\n    return as_believed",
    ),
    mutation(
        "lua/keep-ignored",
        "A release that should keep the key for a time deletes it at once.",
        "if keep ~= '0' and as_believed then",
        "if false then",
    ),
    mutation(
        "lua/leaver-stays-queued",
        "A waiter that leaves is answered *released* and stays in the queue.",
        "call('ZREM', QUEUE, owner) == 1",
        "call('ZSCORE', QUEUE, owner)",
    ),
    mutation(
        "lua/extend-without-owner-check",
        "An extension moves the deadline of the key for any owner.",
        "if holds(owner, believed) then\n    return hold",
        "if holder then\n    return hold",
    ),
    mutation(
        "lua/extend-forgets-deadline",
        "An extension answers *held* and leaves the key's deadline as it is.",
        "call('PEXPIRE', NAME, ttl)",
        "",
    ),
    mutation(
        "lua/extend-retakes",
        "An extension takes an expired lock again.",
        "local function extend(owner, ttl, believed)\n  local value, kind = advance()",
        "local function extend(owner, ttl, believed)\n  local value, kind = advance()\n  if kind == 'none' then grant(owner, ttl, next_fence(), '1', false) end",
    ),
    mutation(
        "lua/extend-ignores-fence",
        "An extension is carried out for a holder of another grant.",
        "if holds(owner, believed) then\n    return hold",
        "if holder == owner then\n    return hold",
    ),
    mutation(
        "lua/release-ignores-fence",
        "A release answers *released* to a holder by another grant.",
        "local as_believed = holds(owner, believed)",
        "local as_believed = true",
    ),
    mutation(
        "lua/waiter-releases-as-holder",
        "A release answers *released* to an owner that only waits.",
        "if not believed then\n      return",
        "if true then\n      return",
    ),
    mutation(
        "lua/break-ignores-fence",
        "A break deletes the key of any holder, whichever fence it names.",
        "if holder and holds(holder, tonumber(seen)) then",
        "if holder then",
    ),
    mutation(
        "lua/set-without-nx",
        "A name that comes twice in a batch is taken twice.",
        "'NX', 'PX', ARGV",
        "'PX', ARGV",
    ),
    mutation(
        "lua/set-without-px",
        "A grant sets the key without a TTL.",
        "call('SET', NAME, written, 'PX', ttl)",
        "call('SET', NAME, written)",
    ),
    mutation(
        "lua/ttl-in-seconds",
        "A grant takes the TTL for seconds.",
        "'NX', 'PX', ARGV",
        "'NX', 'EX', ARGV",
    ),
];
