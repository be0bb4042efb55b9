//! Rules for the keys of locks. No text shows a value.

use super::rule::{Judgement, Rule};
use leasehold::doctor::{IndexedKey, ServerFacts};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "key.immortal",
        judge: immortal,
    },
    Rule {
        id: "key.type",
        judge: kind,
    },
    Rule {
        id: "key.shared",
        judge: shared,
    },
];

/// More than these are more than locks.
const MANY: u64 = 100_000;

/// As many as fit into a line.
const SHOWN: usize = 3;

fn unseen() -> Judgement {
    Judgement::unknown("this user may not read the index of names")
}

fn listed(locks: &[&IndexedKey]) -> String {
    let names: Vec<String> = locks
        .iter()
        .take(SHOWN)
        .map(|lock| format!("\"{}\" ({})", lock.name.escape_debug(), lock.kind))
        .collect();
    let more = locks.len().saturating_sub(SHOWN);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    names.join(", ") + &more
}

fn immortal(facts: &ServerFacts) -> Option<Judgement> {
    let Some(locks) = &facts.locks else {
        return Some(unseen());
    };
    let forever: Vec<&IndexedKey> = locks.iter().filter(|lock| lock.left == -1).collect();
    let Some(first) = forever.first() else {
        let hidden = match facts.hidden_locks {
            0 => String::new(),
            hidden => format!("; {hidden} more, which this user may not read"),
        };
        return Some(Judgement::ok(format!(
            "{} locks in the index, all with a TTL{hidden}",
            locks.len()
        )));
    };
    let name = first.name.escape_debug();
    Some(Judgement::fail(format!("without a TTL, nobody will ever free: {}", listed(&forever)))
        .fix(format!("leasehold inspect \"{name}\" says who has it; then leasehold break \"{name}\" --if-fence N, or DEL if it is foreign")))
}

fn kind(facts: &ServerFacts) -> Option<Judgement> {
    let Some(locks) = &facts.locks else {
        return Some(unseen());
    };
    let foreign: Vec<&IndexedKey> = locks.iter().filter(|lock| lock.kind != "string").collect();
    Some(if foreign.is_empty() {
        Judgement::ok("no lock of another program's form in the index")
    } else {
        Judgement::warn(format!("kept by another program: {}", listed(&foreign)))
            .fix("a hash is Redisson's, a sorted set Symfony's: leasehold sees it as held and never breaks it; use another name")
    })
}

fn shared(facts: &ServerFacts) -> Option<Judgement> {
    let spaces = facts.info.as_ref()?.0.iter().filter(|(name, _)| {
        name.strip_prefix("db")
            .is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    });
    let keys: u64 = spaces
        .filter_map(|(_, about)| {
            about
                .strip_prefix("keys=")?
                .split(',')
                .next()?
                .parse::<u64>()
                .ok()
        })
        .sum();
    Some(if keys > MANY {
        Judgement::info(format!(
            "{keys} keys: shared with other data, whose slow commands hold up locks"
        ))
        .fix("a server for locks only, if waiting times matter")
    } else {
        Judgement::ok(format!("{keys} keys"))
    })
}
