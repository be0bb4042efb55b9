//! The test vectors in `docs/protocol.md` are what the code does.

use leasehold_core::{ClientId, Fence, LockName, Owner};

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
