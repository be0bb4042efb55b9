//! Edits of the sound history that several cases share, and its files.

use super::case::Edit;

pub(super) const W1: &str = "worker-1.jsonl";
pub(super) const W2: &str = "worker-2.jsonl";
pub(super) const W3: &str = "worker-3.jsonl";
pub(super) const CAMPAIGN: &str = "campaign.json";
pub(super) const RESOURCE: &str = "resource.jsonl";
pub(super) const NEMESIS: &str = "nemesis.jsonl";
pub(super) const STORE: &str = "store.jsonl";

pub(super) const TWO_HOLDERS: Edit = Edit(
    W2,
    r#""op":5,"at_ns":735000000"#,
    r#""op":5,"at_ns":725000000"#,
);
pub(super) const LOST_UPDATE: Edit =
    Edit(RESOURCE, r#""base":2,"value":3"#, r#""base":1,"value":3"#);
pub(super) const FALLING: Edit = Edit(W3, r#""fence":128"#, r#""fence":63"#);

/// The clock jumps between two overlapping acquires; the calm is after it.
pub(super) const FORWARD: Edit = Edit(
    NEMESIS,
    "{\"ev\":\"calm\",\"at_ns\":700000000}\n",
    concat!(
        r#"{"ev":"fault","kind":"clock-forward","target":"server","at_ns":714000000,"until_ns":715000000,"by_ns":5000000000}"#,
        "\n",
        r#"{"ev":"calm","at_ns":720000000}"#,
        "\n"
    ),
);

/// Worker 3 is refused when the last lease is released and no other worker wants the lock.
pub(super) const REFUSED: Edit = Edit(
    W3,
    r#"{"ev":"invoke","proc":3,"pid":103,"op":7,"#,
    concat!(
        r#"{"ev":"invoke","proc":3,"pid":103,"op":20,"what":"acquire","lock":"m1","owner":"c9","at_ns":520000000}"#,
        "\n",
        r#"{"ev":"complete","proc":3,"op":20,"at_ns":522000000,"outcome":"refused"}"#,
        "\n",
        r#"{"ev":"invoke","proc":3,"pid":103,"op":7,"#
    ),
);

/// Only worker 3 wants `m2` after the acquire without outcome. It is refused one millisecond after the last moment at which that
/// acquire may hold the lock.
pub(super) const LEFT_ALONE: &[Edit; 6] = &[
    Edit(
        W3,
        r#""owner":"c4","at_ns":560000000"#,
        r#""owner":"c4","at_ns":601000000"#,
    ),
    Edit(
        W3,
        r#""at_ns":565000000,"outcome":"ok","fence":64,"valid_until_ns":707000000"#,
        r#""at_ns":602000000,"outcome":"refused""#,
    ),
    Edit(
        W3,
        concat!(
            r#"{"ev":"invoke","proc":3,"pid":103,"op":8,"what":"release","lock":"m2","owner":"c4","at_ns":570000000}"#,
            "\n"
        ),
        "",
    ),
    Edit(
        W3,
        concat!(
            r#"{"ev":"complete","proc":3,"op":8,"at_ns":572000000,"outcome":"ok"}"#,
            "\n"
        ),
        "",
    ),
    Edit(W3, r#""at_ns":580000000"#, r#""at_ns":620000000"#),
    Edit(W3, r#""at_ns":582000000"#, r#""at_ns":622000000"#),
];

/// The edits of [`LEFT_ALONE`], with a fault of the nemesis.
pub(super) const fn left_alone_and(fault: &'static str) -> [Edit; 7] {
    let [one, two, three, four, five, six] = *LEFT_ALONE;
    [one, two, three, four, five, six, Edit(NEMESIS, "", fault)]
}

/// Moves the acquire without outcome to a much earlier time.
pub(super) const NOT_ASKED: Edit = Edit(
    W1,
    concat!(
        r#"{"ev":"invoke","proc":1,"pid":101,"op":7,"what":"acquire","lock":"m2","owner":"a3","at_ns":340000000}"#,
        "\n",
        r#"{"ev":"complete","proc":1,"op":7,"at_ns":400000000,"outcome":"unknown"}"#,
        "\n"
    ),
    "",
);
pub(super) const ASKED_EARLY: Edit = Edit(
    W1,
    r#"{"ev":"invoke","proc":1,"pid":101,"op":6,"#,
    concat!(
        r#"{"ev":"invoke","proc":1,"pid":101,"op":7,"what":"acquire","lock":"m2","owner":"a3","at_ns":120000000}"#,
        "\n",
        r#"{"ev":"complete","proc":1,"op":7,"at_ns":130000000,"outcome":"unknown"}"#,
        "\n",
        r#"{"ev":"invoke","proc":1,"pid":101,"op":6,"#,
    ),
);
