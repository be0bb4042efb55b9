//! Scripts that are broken on purpose, to try the tests: there only with the feature `mutations`, and never in a release
//! build, in which the feature does nothing.
//!
//! A process has at most one, named by `LEASEHOLD_MUTATION` as `lua/NAME`. `docs/mutations.md` says which test notices
//! which.

use std::sync::OnceLock;

/// The variable that names the one that is active; `core/NAME` is one of the rules'.
const VARIABLE: &str = "LEASEHOLD_MUTATION";

/// A script that is broken.
#[derive(Debug)]
struct Mutation {
    name: &'static str,
    /// What is broken, in a sentence.
    what: &'static str,
    /// What stands once in all of the scripts, and what stands there instead.
    needle: &'static str,
    replacement: &'static str,
}

const fn mutation(
    name: &'static str,
    what: &'static str,
    needle: &'static str,
    replacement: &'static str,
) -> Mutation {
    Mutation {
        name,
        what,
        needle,
        replacement,
    }
}

const ALL: &[Mutation] = &[
    mutation(
        "lua/release-without-owner-check",
        "A release deletes the key, whoever asks.",
        "if value == owner then\n    -- What",
        "if value then\n    -- What",
    ),
    mutation(
        "lua/release-deletes-before-check",
        "A release deletes the key before it looks whose it is.",
        "local value, kind = redis.pcall('GETRANGE', NAME, '0', '1023'), 'string'",
        "local value, kind = redis.pcall('GETRANGE', NAME, '0', '1023'), 'string'\n  call('DEL', NAME)",
    ),
    mutation(
        "lua/release-serves-nobody",
        "A release frees the lock and leaves who waits to poll.",
        "pcall(serve)\n      end",
        "end",
    ),
    mutation(
        "lua/keep-ignored",
        "A release that should keep the key for a time deletes it at once.",
        "if keep == '0' or not as_believed then",
        "if true then",
    ),
    mutation(
        "lua/leaver-stays-queued",
        "A waiter that leaves is answered *released* and stays in the queue.",
        "call('ZREM', QUEUE, owner) == 1",
        "call('ZSCORE', QUEUE, owner)",
    ),
    mutation(
        "lua/extend-without-owner-check",
        "An extension moves the deadline of the key, whoever asks.",
        "if value == owner and is_under(fence) then",
        "if value and is_under(fence) then",
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
        "local function extend(owner, ttl, refill, fence)\n  local value, kind = advance()",
        "local function extend(owner, ttl, refill, fence)\n  local value, kind = advance()
  if not value and grant(owner, ttl) then value = owner end",
    ),
    mutation(
        "lua/extend-ignores-fence",
        "An extension is carried out for a holder of another grant.",
        "if value == owner and is_under(fence) then",
        "if value == owner then",
    ),
    mutation(
        "lua/release-ignores-fence",
        "A release answers *released* to who holds by another grant.",
        "as_believed = as_believed or not told",
        "as_believed = true",
    ),
    mutation(
        "lua/waiter-releases-as-holder",
        "A release answers *released* to who only waits.",
        "if not fence then\n      return",
        "if true then\n      return",
    ),
    mutation(
        "lua/lost-fence-not-restored",
        "An extension whose fence was evicted draws another one for the holder than its own.",
        "remember(first, own)",
        "remember(first)",
    ),
    mutation(
        "lua/break-ignores-fence",
        "A break deletes the key of any holder, whichever fence it names.",
        "if known and granted <= meant and meant < last + FENCE_BLOCK then",
        "if known then",
    ),
    mutation(
        "lua/set-without-nx",
        "A grant overwrites the key of another holder.",
        "call('SET', NAME, owner, 'NX', 'PX', ttl)",
        "call('SET', NAME, owner, 'PX', ttl)",
    ),
    mutation(
        "lua/set-without-px",
        "A grant sets the key without a TTL.",
        "call('SET', NAME, owner, 'NX', 'PX', ttl)",
        "call('SET', NAME, owner, 'NX')",
    ),
    mutation(
        "lua/ttl-in-seconds",
        "A grant takes the TTL for seconds.",
        "call('SET', NAME, owner, 'NX', 'PX', ttl)",
        "call('SET', NAME, owner, 'NX', 'EX', ttl)",
    ),
    mutation(
        "lua/failed-grant-stays",
        "A grant whose fence cannot be written answers an error and keeps the key.",
        "-- A step that answers with an error has changed nothing.\n    call('DEL', NAME)",
        "",
    ),
    mutation(
        "lua/claim-window-is-ttl",
        "A waiter is granted its whole TTL, not the claim window.",
        "grant(token, tonumber(ttl) < CLAIM_WINDOW and ttl or CLAIM_WINDOW)",
        "grant(token, ttl)",
    ),
    mutation(
        "lua/queue-skipped",
        "Who finds the lock expired takes it, whoever waits.",
        "if queued == 0 and grant(owner, ttl) then",
        "if grant(owner, ttl) then",
    ),
    mutation(
        "lua/last-come-first-served",
        "The lock goes to the last in line.",
        "call('ZRANGE', QUEUE, at, at)[1]",
        "call('ZRANGE', QUEUE, '-1', '-1')[1]",
    ),
    mutation(
        "lua/busy-not-queued",
        "Who should wait is refused and not queued.",
        "if channel ~= '' then",
        "if false then",
    ),
    mutation(
        "lua/arrival-by-clock",
        "The place in line is the time of arrival, also while the clock stands still or goes back.",
        "math.max(behind and behind + 1 or 0, time())",
        "time()",
    ),
    mutation(
        "lua/refresh-moves-to-the-end",
        "A waiter that asks again goes to the end of the line.",
        "if not rank then",
        "if true then",
    ),
    mutation(
        "lua/granted-stays-queued",
        "A waiter that is granted the lock keeps its place in the line.",
        "drop(token)\n        if not told then",
        "if not told then",
    ),
    mutation(
        "lua/record-not-removed",
        "What is known of a waiter is kept after it was granted the lock.",
        "call('HDEL', WAITERS, token)",
        "",
    ),
    mutation(
        "lua/silent-waiter-granted",
        "A waiter counts as alive however long ago it was heard of.",
        "token ~= caller and tonumber(seen_until) < now_ms",
        "false",
    ),
    mutation(
        "lua/numsub-not-asked",
        "A waiter counts as alive if anyone at all hears its channel.",
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
        "Who becomes the first in line behind a foreign holder is not told.",
        "if news and not told then",
        "if false then",
    ),
    mutation(
        "lua/short-claim-not-told",
        "Who would sleep past the end of a short claim is not told of it.",
        "if tonumber(ttl) < SHORT_CLAIM then",
        "if false then",
    ),
    mutation(
        "lua/queue-without-expiry",
        "A queue that everyone abandoned is kept for ever.",
        "call('PEXPIRE', QUEUE, QUEUE_MEMORY)\n    -- The holder",
        "-- The holder",
    ),
    mutation(
        "lua/wanted-once",
        "The holder is told that others wait only when the first of them joins.",
        "if ahead == 0 and holder then",
        "if ahead == 0 and holder and not rank then",
    ),
    mutation(
        "lua/fence-not-stored",
        "A grant draws a fence and leaves it to a later step to store it.",
        "redis.pcall('SET', FENCE, now_text, 'PX', FENCE_MEMORY, 'GET')",
        "redis.pcall('GET', FENCE)",
    ),
    mutation(
        "lua/fence-without-last",
        "A fence is the time, even if the last one was higher.",
        "if before and before + FENCE_BLOCK > fence then",
        "if false then",
    ),
    mutation(
        "lua/fence-without-clock",
        "Fences are counted and begin anew when the last one is lost.",
        "local fence = time()\n",
        "local fence = 64\n",
    ),
    mutation(
        "lua/fence-without-expiry",
        "The fence of a name that was used once is kept for ever.",
        "redis.pcall('SET', FENCE, now_text, 'PX', FENCE_MEMORY, 'GET')",
        "redis.pcall('SET', FENCE, now_text, 'GET')",
    ),
    mutation(
        "lua/fence-forgotten-while-held",
        "The last fence is forgotten a day after the grant, however often the lease is extended.",
        "else\n    call('PEXPIRE', FENCE, FENCE_MEMORY)\n  end",
        "end",
    ),
    mutation(
        "lua/refill-not-stored",
        "The fences that a holder draws are not remembered.",
        "call('SET', FENCE, last_text .. ' ' .. granted_text, 'PX', FENCE_MEMORY)",
        "",
    ),
    mutation(
        "lua/batch-shares-fence",
        "A step of a batch takes the last fence of the step before for its own.",
        "last = nil\n    local done",
        "local done",
    ),
];

/// The text of a script, broken if the active mutation is of it.
pub(super) fn broken(text: String) -> String {
    match active() {
        Some(mutation) => text.replace(mutation.needle, mutation.replacement),
        None => text,
    }
}

fn active() -> Option<&'static Mutation> {
    static ACTIVE: OnceLock<Option<&'static Mutation>> = OnceLock::new();
    *ACTIVE.get_or_init(|| {
        let asked = std::env::var(VARIABLE).unwrap_or_default();
        if !asked.starts_with("lua/") {
            return None;
        }
        let found = ALL.iter().find(|known| known.name == asked);
        let known = |known: &Mutation| format!("\n{}: {}", known.name, known.what);
        let all: String = ALL.iter().map(known).collect();
        assert!(found.is_some(), "{VARIABLE}={asked} is none of these:{all}");
        found
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const SCRIPTS: [&str; 8] = [
        include_str!("../../../lua/prelude.lua"),
        include_str!("../../../lua/mutex/acquire.lua"),
        include_str!("../../../lua/mutex/acquire_many.lua"),
        include_str!("../../../lua/mutex/break.lua"),
        include_str!("../../../lua/mutex/extend.lua"),
        include_str!("../../../lua/mutex/inspect.lua"),
        include_str!("../../../lua/mutex/release.lua"),
        include_str!("../../../lua/mutex/settle_many.lua"),
    ];

    #[test]
    fn each_mutation_changes_one_place() {
        for mutation in ALL {
            let places: usize = SCRIPTS
                .iter()
                .map(|script| script.matches(mutation.needle).count())
                .sum();
            assert_eq!(places, 1, "{mutation:#?}");
            assert_ne!(mutation.needle, mutation.replacement, "{mutation:#?}");
        }
    }

    /// Prints all, those of core too, for `scripts/mutants`.
    #[test]
    fn each_mutation_has_a_name_of_its_own() {
        let of_core = leasehold_core::Mutation::ALL
            .iter()
            .map(|mutation| (mutation.name(), mutation.what()));
        let of_scripts = ALL.iter().map(|mutation| (mutation.name, mutation.what));
        let mut names = HashSet::new();
        for (name, what) in of_core.chain(of_scripts) {
            assert!(names.insert(name), "{name}");
            println!("mutation | {name} | {what}");
        }
    }
}
