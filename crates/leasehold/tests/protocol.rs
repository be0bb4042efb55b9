//! The test vectors in `docs/protocol.md` are what the code does.

use std::time::Duration;

use leasehold_core::{
    ClientId, Fence, Holder, LastFence, LockName, Mode, Nobody, Now, Owner, Reply, Step, World,
    poll_after,
};

/// The rows of a vector table, without the backquotes.
fn vectors(table: &str) -> Vec<Vec<String>> {
    let text = include_str!("../../../docs/protocol.md");
    let begin = text
        .find(&format!("<!-- vectors:{table} "))
        .expect("the table is in the document");
    let body = text[begin..].split("<!-- end -->").next().expect("it ends");
    let rows: Vec<_> = body
        .lines()
        .filter(|line| line.starts_with('|'))
        .skip(2)
        .map(cells)
        .collect();
    assert!(rows.len() >= 2, "{table} has rows");
    rows
}

fn cells(row: &str) -> Vec<String> {
    row.trim_matches('|')
        .split('|')
        .map(|cell| cell.trim().trim_matches('`').to_owned())
        .collect()
}

#[test]
fn keys() {
    for row in vectors("keys") {
        let name = LockName::new(&row[0]).expect("a good name");
        assert_eq!([name.key(), &name.beside(":lh-fence")], [&row[1], &row[2]]);
    }
}

#[test]
fn tokens() {
    for row in vectors("tokens") {
        let number = |at: usize| row[at].parse::<u32>().expect("a number");
        let (random, client) = (u128::from(number(0)), ClientId::new(number(1).into()));
        let owner = Owner::new(random, client, &row[2], number(3), &row[4]).expect("a good owner");
        assert_eq!(owner.token(), row[5]);
        assert_eq!(Owner::parse(&row[5]), Some(owner));
    }
}

#[test]
fn fences() {
    for row in vectors("fences") {
        let last = row[0].parse().ok().map(Fence::new);
        let next = Fence::after(last, row[1].parse().expect("a number"));
        assert_eq!(next.to_string(), row[2]);
    }
}

#[test]
fn refills() {
    for row in vectors("refills") {
        let number = |at: usize| row[at].parse::<u64>().expect("a number");
        let refill = Fence::refill(Some(Fence::new(number(0))), number(1));
        assert_eq!(refill.get(), number(2));
    }
}

#[test]
fn grants() {
    let now = Now::at_micros(0);
    let name = LockName::new("m").expect("a good name");
    for row in vectors("grants") {
        let fence = |at: usize| Fence::new(row[at].parse().expect("a number"));
        let mut world = World::default();
        let owner = Owner::new(1, ClientId::new(1), "h", 1, "").expect("a good owner");
        world.entry(&name).holders.push(Holder {
            owner,
            mode: Mode::Exclusive,
            expires_at_ms: 1,
            kept: false,
        });
        world.entry(&name).fence = Some(LastFence {
            fence: fence(1),
            granted: fence(0),
            forget_at_ms: 1,
        });
        let step = Step::Break { fence: fence(2) };
        let reply = world.apply(now, &name, &step, &Nobody).reply;
        assert_eq!(reply == Reply::Released, row[3] == "yes", "{row:?}");
    }
}

#[test]
fn polls() {
    for row in vectors("polls") {
        let left = row[1].parse().ok().map(Duration::from_millis);
        let (foreign, listening) = (row[2] == "foreign", row[3] == "yes");
        let ahead = row[0].parse().expect("a number");
        let after = poll_after(ahead, left, foreign, listening);
        assert_eq!(after.as_millis().to_string(), row[4], "{row:?}");
    }
}
