//! The broken histories, and the invariant that must reject each. Each case breaks one thing.

use super::case::{Broken, Edit};
use super::edits::{
    ASKED_EARLY, CAMPAIGN, FALLING, FORWARD, LEFT_ALONE, LOST_UPDATE, NEMESIS, NOT_ASKED, REFUSED,
    RESOURCE, STORE, TWO_HOLDERS, W1, W2, W3, left_alone_and,
};
use leasehold_lab::history::Invariant::{
    self, Exclusion, FenceOrder, FencedResource, Liveness, LogsAgree, NoLateSuccess, NoLostUpdate,
    OwnLockOnly, RealCampaign, ToldInTime, UniqueFence, UnknownResolves,
};

const RELEASE_OF_A1: &str = r#""what":"release","lock":"m1","owner":"a1","at_ns":60000000"#;
const EXTEND_OF_A1: &str = r#""what":"extend","lock":"m1","owner":"a1","at_ns":60000000"#;

const TOO_LITTLE: &[Edit] = &left_alone_and(
    "{\"ev\":\"fault\",\"kind\":\"clock-back\",\"target\":\"server\",\"at_ns\":450000000,\"by_ns\":900000}\n",
);
const TOO_LATE: &[Edit] = &left_alone_and(
    "{\"ev\":\"fault\",\"kind\":\"clock-back\",\"target\":\"server\",\"at_ns\":600500000,\"by_ns\":9000000}\n",
);

const fn broken(name: &'static str, by: Invariant, edits: &'static [Edit]) -> Broken {
    Broken { name, by, edits }
}

pub(super) const ALL: &[Broken] = &[
    broken(
        "a fence twice",
        UniqueFence,
        &[Edit(W2, r#""fence":448"#, r#""fence":384"#)],
    ),
    broken(
        "a lease without a fence",
        UniqueFence,
        &[Edit(W1, r#""fence":192,"#, "")],
    ),
    broken("a fence that falls", FenceOrder, &[FALLING]),
    broken(
        "fences in the wrong order although both acquires were under way",
        FenceOrder,
        &[
            Edit(W2, r#""fence":448"#, r#""fence":384"#),
            Edit(W1, r#""fence":384"#, r#""fence":448"#),
        ],
    ),
    broken(
        "a fence that falls when the store has lost its data",
        FenceOrder,
        &[
            Edit(W3, r#""fence":128"#, r#""fence":64"#),
            Edit(
                NEMESIS,
                "",
                "{\"ev\":\"server-start\",\"epoch\":1,\"at_ns\":575000000}\n",
            ),
        ],
    ),
    broken("two holders", Exclusion, &[TWO_HOLDERS]),
    broken(
        "two holders, by the deadline that an extend gave",
        Exclusion,
        &[
            Edit(
                W1,
                r#""valid_until_ns":187000000"#,
                r#""valid_until_ns":287000000"#,
            ),
            Edit(
                W1,
                r#""what":"release","lock":"m1","owner":"a1","at_ns":60000000"#,
                r#""what":"release","lock":"m1","owner":"a1","at_ns":69000000"#,
            ),
            Edit(
                W1,
                r#""op":5,"at_ns":62000000"#,
                r#""op":5,"at_ns":69000000"#,
            ),
        ],
    ),
    broken(
        "a stale write accepted",
        FencedResource,
        &[
            Edit(
                RESOURCE,
                r#""fence":128,"base":1,"value":2,"accepted":false"#,
                r#""fence":128,"base":2,"value":3,"accepted":true"#,
            ),
            Edit(
                RESOURCE,
                r#""value":2,"accepted":true,"highest":320"#,
                r#""value":3,"accepted":true,"highest":320"#,
            ),
            Edit(
                RESOURCE,
                r#""base":2,"value":3,"accepted":true,"highest":320"#,
                r#""base":3,"value":4,"accepted":true,"highest":320"#,
            ),
            Edit(
                W2,
                r#""op":3,"at_ns":265000000,"outcome":"refused""#,
                r#""op":3,"at_ns":265000000,"outcome":"ok""#,
            ),
        ],
    ),
    broken(
        "a resource that forgets what it has seen",
        FencedResource,
        &[Edit(
            RESOURCE,
            r#""accepted":false,"highest":192"#,
            r#""accepted":false,"highest":128"#,
        )],
    ),
    broken("a write on an old version", NoLostUpdate, &[LOST_UPDATE]),
    broken(
        "a version left out",
        NoLostUpdate,
        &[Edit(
            RESOURCE,
            r#""base":2,"value":3"#,
            r#""base":2,"value":4"#,
        )],
    ),
    broken(
        "a read of an old version",
        NoLostUpdate,
        &[Edit(
            RESOURCE,
            r#""value":2,"accepted":true,"highest":320"#,
            r#""value":1,"accepted":true,"highest":320"#,
        )],
    ),
    broken(
        "another's lock removed",
        OwnLockOnly,
        &[Edit(STORE, r#""whose":"none""#, r#""whose":"c2""#)],
    ),
    broken(
        "an extend after the deadline that it names",
        NoLateSuccess,
        &[Edit(
            W1,
            r#""valid_until_ns":187000000"#,
            r#""valid_until_ns":36000000"#,
        )],
    ),
    broken(
        "a release that is ok after the loss",
        NoLateSuccess,
        &[Edit(W2, r#""outcome":"lost""#, r#""outcome":"ok""#)],
    ),
    broken("an orphan that stays", UnknownResolves, LEFT_ALONE),
    broken(
        "an orphan that stays for longer than the clock was set back",
        UnknownResolves,
        TOO_LITTLE,
    ),
    broken(
        "an orphan that was gone when the clock was set back",
        UnknownResolves,
        TOO_LATE,
    ),
    broken(
        "two holders although the clock was only set back",
        Exclusion,
        &[
            TWO_HOLDERS,
            Edit(
                NEMESIS,
                "",
                "{\"ev\":\"fault\",\"kind\":\"clock-back\",\"target\":\"server\",\"at_ns\":690000000,\"by_ns\":9000000}\n",
            ),
        ],
    ),
    broken(
        "two holders after the clock was set forward",
        Exclusion,
        &[
            TWO_HOLDERS,
            Edit(
                NEMESIS,
                "",
                "{\"ev\":\"fault\",\"kind\":\"clock-forward\",\"target\":\"server\",\"at_ns\":690000000,\"by_ns\":5000000000}\n",
            ),
        ],
    ),
    broken(
        "a fence twice although the clock was set forward between",
        UniqueFence,
        &[Edit(W2, r#""fence":448"#, r#""fence":384"#), FORWARD],
    ),
    broken(
        "a fence that falls when the clock is set back",
        FenceOrder,
        &[
            FALLING,
            Edit(
                NEMESIS,
                "",
                "{\"ev\":\"fault\",\"kind\":\"clock-back\",\"target\":\"server\",\"at_ns\":575000000,\"by_ns\":5000000000}\n",
            ),
        ],
    ),
    broken(
        "a refusal because of an orphan of long ago",
        UnknownResolves,
        &[NOT_ASKED, ASKED_EARLY],
    ),
    broken(
        "a refusal because of a release that no failover took back",
        UnknownResolves,
        &[
            REFUSED,
            Edit(
                NEMESIS,
                "",
                concat!(
                    r#"{"ev":"fault","kind":"failover","target":"server","at_ns":490000000,"until_ns":515000000}"#,
                    "\n",
                    r#"{"ev":"server-start","epoch":1,"at_ns":515000000}"#,
                    "\n"
                ),
            ),
        ],
    ),
    broken(
        "a holder told late",
        ToldInTime,
        &[Edit(
            W3,
            r#""owner":"c5","at_ns":728000000"#,
            r#""owner":"c5","at_ns":733000000"#,
        )],
    ),
    broken(
        "a stopped holder told late, but it was not stopped",
        ToldInTime,
        &[Edit(
            NEMESIS,
            r#""target":"worker-2","at_ns":80000000"#,
            r#""target":"worker-4","at_ns":80000000"#,
        )],
    ),
    broken(
        "an acquire that takes too long",
        Liveness,
        &[
            Edit(
                W2,
                r#""op":5,"at_ns":735000000"#,
                r#""op":5,"at_ns":772000000"#,
            ),
            Edit(
                W2,
                r#""owner":"b2","at_ns":740000000"#,
                r#""owner":"b2","at_ns":773000000"#,
            ),
            Edit(
                W2,
                r#""op":6,"at_ns":742000000"#,
                r#""op":6,"at_ns":774000000"#,
            ),
        ],
    ),
    broken(
        "a fault that never happened",
        RealCampaign,
        &[Edit(
            NEMESIS,
            concat!(
                r#"{"ev":"fault","kind":"script-flush","target":"server","at_ns":500000000}"#,
                "\n"
            ),
            "",
        )],
    ),
    broken(
        "a fault after the calm",
        RealCampaign,
        &[Edit(
            NEMESIS,
            r#""target":"server","at_ns":500000000"#,
            r#""target":"server","at_ns":750000000"#,
        )],
    ),
    broken(
        "a worker that did nothing",
        RealCampaign,
        &[Edit(CAMPAIGN, r#""workers":4"#, r#""workers":5"#)],
    ),
    broken(
        "a write that the resource does not know",
        LogsAgree,
        &[Edit(
            W2,
            r#""op":3,"at_ns":265000000,"outcome":"refused""#,
            r#""op":3,"at_ns":265000000,"outcome":"ok""#,
        )],
    ),
    broken(
        "a decision before it was asked for",
        LogsAgree,
        &[Edit(
            RESOURCE,
            r#""at_ns":469000000"#,
            r#""at_ns":467000000"#,
        )],
    ),
    broken(
        "a decision after it was answered",
        LogsAgree,
        &[Edit(
            RESOURCE,
            r#""at_ns":469000000"#,
            r#""at_ns":471000000"#,
        )],
    ),
    broken(
        "a read under a lease of nobody",
        LogsAgree,
        &[Edit(
            W2,
            r#""what":"read","lock":"m1","owner":"b1""#,
            r#""what":"read","lock":"m1","owner":"b9""#,
        )],
    ),
    broken(
        "an extend that gets a lock back after its release",
        NoLateSuccess,
        &[
            Edit(W1, RELEASE_OF_A1, EXTEND_OF_A1),
            Edit(
                W1,
                r#""op":4,"at_ns":42000000,"outcome":"ok","valid_until_ns":187000000"#,
                r#""op":4,"at_ns":42000000,"outcome":"ok""#,
            ),
            Edit(
                W1,
                r#""what":"extend","lock":"m1","owner":"a1","at_ns":40000000"#,
                r#""what":"release","lock":"m1","owner":"a1","at_ns":40000000"#,
            ),
        ],
    ),
    broken(
        "a holder that goes on after its deadline and is not told",
        ToldInTime,
        &[Edit(
            W1,
            r#""owner":"a4","at_ns":468000000"#,
            r#""owner":"a4","at_ns":468000000,"valid_until_ns":462500000"#,
        )],
    ),
    broken(
        "a worker that writes while it is stopped",
        RealCampaign,
        &[Edit(
            NEMESIS,
            r#""target":"worker-2","at_ns":80000000"#,
            r#""target":"worker-2","at_ns":60000000"#,
        )],
    ),
    broken(
        "a worker that writes after it was killed",
        RealCampaign,
        &[Edit(
            NEMESIS,
            r#""at_ns":310000000"#,
            r#""at_ns":301000000"#,
        )],
    ),
    broken(
        "an extend with another fence",
        LogsAgree,
        &[Edit(
            W1,
            r#""outcome":"ok","valid_until_ns":187000000"#,
            r#""outcome":"ok","fence":65,"valid_until_ns":187000000"#,
        )],
    ),
    broken(
        "a release of what was refused",
        LogsAgree,
        &[Edit(
            W3,
            "",
            concat!(
                r#"{"ev":"invoke","proc":3,"pid":103,"op":20,"what":"release","lock":"m2","owner":"c3","at_ns":729000000}"#,
                "\n",
                r#"{"ev":"complete","proc":3,"op":20,"at_ns":730000000,"outcome":"ok"}"#,
                "\n"
            ),
        )],
    ),
];
