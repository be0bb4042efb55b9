//! Scripts that are broken on purpose, to try the tests: there only with `--cfg leasehold_mutations`, which this
//! repository's `.cargo/config.toml` sets, and never in a release build.
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
        "if holder == owner then\n    local as_believed",
        "if holder then\n    local as_believed",
    ),
    mutation(
        "lua/release-deletes-before-check",
        "A release deletes the key before it looks whose it is.",
        "local function release(owner, keep, believed)\n  local value, kind = advance()",
        "local function release(owner, keep, believed)\n  local value, kind = advance()\n  call('DEL', NAME)",
    ),
    mutation(
        "lua/release-serves-nobody",
        "A release frees the lock and leaves who waits to poll.",
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
        "An extension moves the deadline of the key, whoever asks.",
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
        "A release answers *released* to who holds by another grant.",
        "local as_believed = holds(owner, believed)",
        "local as_believed = true",
    ),
    mutation(
        "lua/waiter-releases-as-holder",
        "A release answers *released* to who only waits.",
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
    mutation(
        "lua/claim-window-is-ttl",
        "A waiter is granted its whole TTL, not the claim window.",
        "grant(token, tonumber(ttl) < CLAIM_WINDOW and ttl or CLAIM_WINDOW, first",
        "grant(token, ttl, first",
    ),
    mutation(
        "lua/queue-skipped",
        "Who finds the lock expired takes it, whoever waits.",
        "local value, kind = advance(owner)\n  if holder == owner",
        "local value, kind = look()\n  if holder == owner",
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
        "drop(token)\n        grant(",
        "grant(",
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
        "call('PEXPIRE', QUEUE, QUEUE_MEMORY)\n    if holder and not contended",
        "if holder and not contended",
    ),
    mutation(
        "lua/wanted-once",
        "The holder is told that others wait only when the first of them joins.",
        "if ahead == 0 and holder then",
        "if ahead == 0 and holder and not rank then",
    ),
    mutation(
        "lua/fence-not-stored",
        "A grant draws a fence and does not count it.",
        "call('SET', COUNTER, digits(first + block - 1))",
        "",
    ),
    mutation(
        "lua/fence-without-last",
        "A fence is the time, even if the last one drawn was higher.",
        "return last and last >= first and last <= FENCE_MAX - BLOCK_MOST and last + 1 or first",
        "return first",
    ),
    mutation(
        "lua/fence-without-clock",
        "Fences are counted and begin anew when the counter is lost.",
        "local last, first = call('GET', COUNTER), time()",
        "local last, first = call('GET', COUNTER), 64",
    ),
    mutation(
        "lua/counter-expires",
        "The counter is forgotten after a minute.",
        "call('SET', COUNTER, digits(first + block - 1))",
        "call('SET', COUNTER, digits(first + block - 1), 'PX', '60000')",
    ),
    mutation(
        "lua/block-not-counted",
        "The counter goes on by one, however many fences a grant draws.",
        "call('SET', COUNTER, digits(first + block - 1))",
        "call('SET', COUNTER, digits(first))",
    ),
    mutation(
        "lua/mark-forgotten",
        "The holder's value does not say that others wait.",
        "call('SET', NAME, written .. '!', 'KEEPTTL')",
        "",
    ),
    mutation(
        "lua/short-release-without-check",
        "The short form deletes the key, whoever asks.",
        "if value ~= own then",
        "if not value then",
    ),
    mutation(
        "lua/short-mark-ignored",
        "The short form frees a lock of several fences that others wait for.",
        "elseif string.byte(rest, -1) == 33 then",
        "elseif false then",
    ),
    mutation(
        "lua/short-keep-ignored",
        "The short form deletes a key that is to be kept for a time.",
        "if ms ~= '0' then",
        "if ARGV[3 * number - 1] == 'extend' then",
    ),
    mutation(
        "lua/short-extend-forgets-deadline",
        "The short form answers *held* and leaves the key's deadline as it is.",
        "call('PEXPIRE', name, ms)",
        "",
    ),
    mutation(
        "lua/short-freed-twice",
        "The short form frees a lock for its holder as often as it is asked to in a batch.",
        "freed[#freed + 1], gone[name] = name, true",
        "freed[#freed + 1] = name",
    ),
    mutation(
        "lua/short-queue-skipped",
        "The short form takes a free lock, whoever waits.",
        "call('EXISTS', unpack(KEYS, 2)) == 0",
        "call('EXISTS', KEYS[2]) == 0",
    ),
    mutation(
        "lua/short-set-without-px",
        "The short form takes a lock for ever.",
        "'NX', 'PX', ARGV[3 * number - 1])",
        "'NX')",
    ),
    mutation(
        "lua/short-fence-not-stored",
        "The short form draws a fence and does not count it.",
        "if drawn then",
        "if false then",
    ),
    mutation(
        "lua/short-fence-without-last",
        "In the short form a fence is the time, even if the last one drawn was higher.",
        "if last and (#last > #fence or",
        "if false and (#last > #fence or",
    ),
    mutation(
        "lua/short-fence-without-clock",
        "In the short form fences are counted and begin anew when the counter is lost.",
        "clock[1] .. string.rep('0', 6 - #clock[2]) .. clock[2], nil, nil",
        "'64', nil, nil",
    ),
    mutation(
        "lua/short-block-not-counted",
        "In the short form the counter goes on by one, however many fences a grant draws.",
        "(next or fence) + block",
        "(next or fence) + 1",
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

    const SCRIPTS: [&str; 10] = [
        include_str!("../../../lua/prelude.lua"),
        include_str!("../../../lua/mutex/take.lua"),
        include_str!("../../../lua/mutex/settle.lua"),
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
