//! Changes that must not lead to rejection, or only as a control.

use super::case::{Edit, Expected, Harmless};
use super::edits::{
    ASKED_EARLY, CAMPAIGN, FALLING, FORWARD, LOST_UPDATE, NEMESIS, NOT_ASKED, REFUSED, TWO_HOLDERS,
    W1, W2, W3, left_alone_and,
};
use leasehold_lab::history::Invariant::{Exclusion, FenceOrder, NoLostUpdate};

const SET_BACK: &[Edit] = &left_alone_and(
    "{\"ev\":\"fault\",\"kind\":\"clock-back\",\"target\":\"server\",\"at_ns\":450000000,\"by_ns\":1000000}\n",
);

const CONTROL: Edit = Edit(CAMPAIGN, r#""control":false"#, r#""control":true"#);
const RUNG: Edit = Edit(CAMPAIGN, r#""system":"leasehold""#, r#""system":"P4""#);

/// The harmless side of the same limits; and the violations that a control may or must show.
pub(super) const ALL: &[Harmless] = &[
    Harmless {
        name: "two holders because the store lost its data",
        expected: Expected::Sound,
        edits: &[
            Edit(
                W2,
                r#""op":5,"at_ns":735000000"#,
                r#""op":5,"at_ns":725000000"#,
            ),
            Edit(
                W2,
                r#""owner":"b2","at_ns":711000000"#,
                r#""owner":"b2","at_ns":724000000"#,
            ),
            Edit(
                NEMESIS,
                "",
                "{\"ev\":\"server-start\",\"epoch\":1,\"at_ns\":720000000}\n",
            ),
        ],
    },
    Harmless {
        name: "told late, but in time for the deadline that the library had moved",
        expected: Expected::Sound,
        edits: &[Edit(
            W3,
            r#""owner":"c5","at_ns":728000000"#,
            r#""owner":"c5","at_ns":738000000,"valid_until_ns":737000000"#,
        )],
    },
    Harmless {
        name: "a deadline written down by who was stopped until long after it",
        expected: Expected::Sound,
        edits: &[Edit(
            W2,
            r#""owner":"b1","at_ns":263000000"#,
            r#""owner":"b1","at_ns":263000000,"valid_until_ns":210000000"#,
        )],
    },
    Harmless {
        name: "a write without an outcome that the resource refused",
        expected: Expected::Sound,
        edits: &[Edit(
            W2,
            r#""op":3,"at_ns":265000000,"outcome":"refused""#,
            r#""op":3,"at_ns":263500000,"outcome":"unknown""#,
        )],
    },
    Harmless {
        name: "a refusal in the last moment of an orphan",
        expected: Expected::Sound,
        edits: &[Edit(
            W3,
            r#""op":6,"at_ns":412000000"#,
            r#""op":6,"at_ns":559000000"#,
        )],
    },
    Harmless {
        name: "an orphan of long ago, kept by a server that was stopped",
        expected: Expected::Sound,
        edits: &[
            NOT_ASKED,
            ASKED_EARLY,
            Edit(
                NEMESIS,
                "",
                "{\"ev\":\"fault\",\"kind\":\"stop-server\",\"target\":\"server\",\"at_ns\":125000000,\"until_ns\":230000000}\n",
            ),
        ],
    },
    Harmless {
        name: "a refusal because of a release that a failover took back",
        expected: Expected::Sound,
        edits: &[
            REFUSED,
            Edit(
                NEMESIS,
                "",
                concat!(
                    r#"{"ev":"fault","kind":"failover","target":"server","at_ns":481000000,"until_ns":515000000}"#,
                    "\n",
                    r#"{"ev":"server-start","epoch":1,"at_ns":515000000}"#,
                    "\n"
                ),
            ),
        ],
    },
    Harmless {
        name: "two holders because the clock was set forward",
        expected: Expected::Sound,
        edits: &[TWO_HOLDERS, FORWARD],
    },
    Harmless {
        name: "two holders, one by a deadline of before the clock was set forward that was handed on in its process",
        expected: Expected::Sound,
        edits: &[
            TWO_HOLDERS,
            Edit(
                W1,
                r#""fence":384,"valid_until_ns":857000000"#,
                r#""fence":384,"valid_until_ns":839000000"#,
            ),
            Edit(
                NEMESIS,
                "",
                "{\"ev\":\"fault\",\"kind\":\"clock-forward\",\"target\":\"server\",\"at_ns\":690000000,\"by_ns\":5000000000}\n",
            ),
        ],
    },
    Harmless {
        name: "an orphan that stays for as long as the clock was set back",
        expected: Expected::Sound,
        edits: SET_BACK,
    },
    Harmless {
        name: "a lease that its holder took for lost, kept by a clock that was set back",
        expected: Expected::Sound,
        edits: &[
            Edit(
                W3,
                r#"{"ev":"invoke","proc":3,"pid":103,"op":6,"#,
                concat!(
                    r#"{"ev":"invoke","proc":3,"pid":103,"op":20,"what":"acquire","lock":"m1","owner":"c9","at_ns":270000000}"#,
                    "\n",
                    r#"{"ev":"complete","proc":3,"op":20,"at_ns":272000000,"outcome":"refused"}"#,
                    "\n",
                    r#"{"ev":"invoke","proc":3,"pid":103,"op":6,"#
                ),
            ),
            Edit(
                NEMESIS,
                "",
                "{\"ev\":\"fault\",\"kind\":\"clock-back\",\"target\":\"server\",\"at_ns\":150000000,\"by_ns\":9000000}\n",
            ),
        ],
    },
    Harmless {
        name: "a control that shows nothing",
        expected: Expected::Hollow,
        edits: &[CONTROL],
    },
    Harmless {
        name: "a control that shows a lost update",
        expected: Expected::Shows(NoLostUpdate),
        edits: &[CONTROL, LOST_UPDATE],
    },
    Harmless {
        name: "a control of a rung that shows two holders",
        expected: Expected::Shows(Exclusion),
        edits: &[CONTROL, RUNG, TWO_HOLDERS],
    },
    Harmless {
        name: "a control in which a lock that is to be trusted has two holders",
        expected: Expected::Rejected(Exclusion),
        edits: &[CONTROL, TWO_HOLDERS],
    },
    Harmless {
        name: "a control of a rung whose fences fall, which is not what it was to show",
        expected: Expected::Forgiven(FenceOrder),
        edits: &[CONTROL, RUNG, FALLING],
    },
];
