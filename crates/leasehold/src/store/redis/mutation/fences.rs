//! Mutations of the fences and their counter.

use super::mutated::{Mutation, mutation};

pub(super) const FENCES: &[Mutation] = &[
    mutation(
        "lua/fence-not-stored",
        "A grant draws a fence and does not count it.",
        "call('SET', COUNTER, digits(first + block - 1))",
        "",
    ),
    mutation(
        "lua/fence-without-last",
        "A fence is the time, even if the last one drawn was higher.",
        "return last and last >= first and last + 1 or first",
        "return first",
    ),
    mutation(
        "lua/fence-without-clock",
        "Fences are counted and begin anew when the counter is lost.",
        "local last, first = last_fence(), time()",
        "local last, first = last_fence(), 64",
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
];
