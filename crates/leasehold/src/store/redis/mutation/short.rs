//! Mutations of the short forms, and of the mark that shows them that others wait.

use super::mutated::{Mutation, mutation};

pub(super) const SHORT: &[Mutation] = &[
    mutation(
        "lua/mark-forgotten",
        "The holder's value does not say that others wait.",
        "call('SET', NAME, written .. '!', 'KEEPTTL')",
        "",
    ),
    mutation(
        "lua/short-release-without-check",
        "The short form deletes the key for any owner.",
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
        "The short form takes a free lock even if others wait.",
        "call('EXISTS', unpack(KEYS, 2)) == 0",
        "call('EXISTS', KEYS[2]) == 0",
    ),
    mutation(
        "lua/short-set-without-px",
        "The short form takes a lock without a TTL.",
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
