//! Scripts that are broken on purpose, to try the tests. They exist only with `--cfg leasehold_mutations`, which this
//! repository's `.cargo/config.toml` sets, and never in a release build.
//!
//! A process has at most one, named by `LEASEHOLD_MUTATION` as `lua/NAME`. `docs/how-we-know/mutations.md` lists the
//! test that notices each.

mod fences;
mod holder;
mod line;
mod mutated;
mod short;

use std::sync::OnceLock;

use self::fences::FENCES;
use self::holder::HOLDER;
use self::line::LINE;
use self::mutated::Mutation;
use self::short::SHORT;

/// The variable that names the active mutation; `core/NAME` is a mutation of the rules.
const VARIABLE: &str = "LEASEHOLD_MUTATION";

/// All mutations, in the order of printing.
const PARTS: [&[Mutation]; 4] = [HOLDER, LINE, FENCES, SHORT];

fn all() -> impl Iterator<Item = &'static Mutation> {
    PARTS.into_iter().flatten()
}

/// The text of a script, with the active mutation if it concerns that text.
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
        let found = all().find(|known| known.name == asked);
        let known = |known: &Mutation| format!("\n{}: {}", known.name, known.what);
        let names: String = all().map(known).collect();
        assert!(
            found.is_some(),
            "{VARIABLE}={asked} is none of these:{names}"
        );
        found
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const SCRIPTS: [&str; 13] = [
        include_str!("../../../../lua/prelude.lua"),
        include_str!("../../../../lua/mutex/take.lua"),
        include_str!("../../../../lua/mutex/settle.lua"),
        include_str!("../../../../lua/mutex/acquire.lua"),
        include_str!("../../../../lua/mutex/acquire_many.lua"),
        include_str!("../../../../lua/mutex/break.lua"),
        include_str!("../../../../lua/mutex/extend.lua"),
        include_str!("../../../../lua/mutex/inspect.lua"),
        include_str!("../../../../lua/mutex/refuse.lua"),
        include_str!("../../../../lua/mutex/release.lua"),
        include_str!("../../../../lua/mutex/settle_many.lua"),
        include_str!("../../../../lua/quorum/propose.lua"),
        include_str!("../../../../lua/quorum/propose_many.lua"),
    ];

    #[test]
    fn each_mutation_changes_one_place() {
        for mutation in all() {
            let places: usize = SCRIPTS
                .iter()
                .map(|script| script.matches(mutation.needle).count())
                .sum();
            assert_eq!(places, 1, "{mutation:#?}");
            assert_ne!(mutation.needle, mutation.replacement, "{mutation:#?}");
        }
    }

    /// Prints all mutations, including those of core, for `scripts/mutants`.
    #[test]
    fn each_mutation_has_a_name_of_its_own() {
        let of_core = leasehold_core::Mutation::ALL
            .iter()
            .map(|mutation| (mutation.name(), mutation.what()));
        let of_scripts = all().map(|mutation| (mutation.name, mutation.what));
        let mut names = HashSet::new();
        for (name, what) in of_core.chain(of_scripts) {
            assert!(names.insert(name), "{name}");
            println!("mutation | {name} | {what}");
        }
    }
}
