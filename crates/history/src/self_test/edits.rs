//! Changes of the sound history that several cases share, and its files. Must never hold one that only a single case needs.

use super::Edit;

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

/// Worker 3 is refused when the last lease is released and nobody else wants the lock.
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

/// The acquire without outcome, taken out where it is and put in long before.
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
