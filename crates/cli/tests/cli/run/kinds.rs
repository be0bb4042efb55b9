//! `--shared` and `--slots`: several commands at a time under one lock.

use crate::common::{LEASEHOLD, Running, Store, json, on_each_store_of_entries};

on_each_store_of_entries! {
    readers_run_beside_each_other_and_a_writer_alone,
    as_many_run_as_there_are_slots,
    a_run_inside_another_does_not_wait_for_it,
    a_break_says_whom_it_ends,
    a_break_by_id_ends_one_of_several,
    what_holds_alone_cannot_be_shared,
}

mod quorum {
    use super::{Store, json};

    #[test]
    fn readers_run_beside_each_other_and_a_writer_alone() {
        super::readers_run_beside_each_other_and_a_writer_alone(&Store::quorum());
    }

    /// Each has a number of its own.
    #[test]
    fn a_break_ends_one_reader() {
        let store = Store::quorum();
        let _readers = ["one", "two"].map(|name| super::holds(&store, "--shared x", name));
        let look = || json(&store.verb("inspect", "--json x").is(0, &[]).stdout);
        let shown = &look()["locks"][0];
        let (one, two) = (&shown["fence"], &shown["others"][0]["fence"]);
        assert_ne!(one, two);
        let all = ["(shows all: 2 readers)"];
        store.verb("break", "x").is(64, &all);
        let broken = ["one reader of \"x\" was broken: it was held by "];
        store
            .verb("break", &format!("--if-fence {one} x"))
            .is(0, &broken);
        let left = &look()["locks"][0];
        let others = left["others"].as_array().map(Vec::len);
        assert_eq!((&left["fence"], others), (two, Some(0)));
    }

    /// It has no fence, like a lock of the timestamp protocol.
    #[test]
    fn a_reader_that_is_lost_is_called_a_lease() {
        let store = Store::quorum();
        let reader = super::holds(&store, "--shared --ttl 6s x", "one");
        let look = || json(&store.verb("inspect", "--json x").is(0, &[]).stdout);
        let id = look()["locks"][0]["holder"]["id"].take();
        let words = format!("--holder {} x", id.as_str().expect("digits"));
        store.verb("break", &words).is(0, &["\"x\" was broken"]);
        reader.ends(79, &["the lease on \"x\" was lost: "]);
    }

    #[test]
    fn slots_are_refused() {
        let store = Store::quorum();
        store
            .run("--slots 2 x true")
            .is(78, &["a quorum has no semaphores"]);
    }
}

/// Runs until the test lets it go; writes what its environment says to the file `name`.
fn holds(store: &Store, words: &str, name: &str) -> Running {
    let script = format!(
        "echo \"$LEASEHOLD_MODE $LEASEHOLD_SLOT ${{LEASEHOLD_FENCE+fence}} ${{LEASEHOLD_SLOT_FENCE+slot-fence}} \
         ${{LEASEHOLD_TOKEN+token}}\" > {name}.says; echo 1 > {name}; while ! [ -e {name}.go ]; do sleep 0.02; done"
    );
    let running = store.script(words, &script).start();
    store.number(name);
    running
}

fn goes(store: &Store, name: &str, holder: Running) {
    std::fs::write(store.file(&format!("{name}.go")), "").expect("a file");
    holder.ends(0, &[]);
}

fn said(store: &Store, name: &str) -> String {
    std::fs::read_to_string(store.file(&format!("{name}.says"))).expect("it was written")
}

fn readers_run_beside_each_other_and_a_writer_alone(store: &Store) {
    let one = holds(store, "--shared x", "one");
    let other = holds(store, "-s --report report x", "other");
    let is_quorum = !store.quorum.is_empty();
    let fence = if is_quorum { "" } else { "fence" };
    for name in ["one", "other"] {
        assert_eq!(said(store, name), format!("shared  {fence}  \n"));
    }
    let shown = store.verb("inspect", "x").is(0, &[]);
    assert!(
        shown.stdout.contains("\"x\" is held by 2 readers\n"),
        "{shown:?}"
    );
    let shown = json(&store.verb("inspect", "--json x").is(0, &[]).stdout);
    let lock = &shown["locks"][0];
    assert_eq!(
        (&lock["mode"], lock["others"].as_array().map(Vec::len)),
        (&"shared".into(), Some(1))
    );
    let busy = ["\"x\" is busy", "next    leasehold run -w 5m "];
    store.run("-n x true").is(75, &busy);
    goes(store, "one", one);
    store.is_busy();
    goes(store, "other", other);
    let report = store.document("report");
    assert_eq!(
        (&report["mode"], &report["slot"]),
        (&"shared".into(), &serde_json::Value::Null)
    );
    assert_eq!(report["fence"].is_null(), is_quorum);
    let writer = holds(store, "x", "writer");
    assert_eq!(said(store, "writer"), "exclusive  fence  token\n");
    let busy = ["\"x\" is busy", "next    leasehold run --shared -w 5m "];
    store.run("-n -s x true").is(75, &busy);
    goes(store, "writer", writer);
    store.is_free();
}

fn as_many_run_as_there_are_slots(store: &Store) {
    let one = holds(store, "--slots 2 x", "one");
    let two = holds(store, "--slots 2 --report report x", "two");
    assert_eq!(said(store, "one"), "slot/2 1  slot-fence \n");
    assert_eq!(said(store, "two"), "slot/2 2  slot-fence \n");
    let shown = store.verb("inspect", "x").is(0, &[]);
    for part in ["\"x\" is held by 2 of 2 slots\n", "slot 1: ", "slot 2: "] {
        assert!(shown.stdout.contains(part), "{part}: {shown:?}");
    }
    let busy = ["\"x\" is busy", "next    leasehold run --slots 2 -w 5m "];
    store.run("-n --slots 2 x true").is(75, &busy);
    store.run("-n --slots 3 x true").is(0, &[]);
    store.is_busy();
    goes(store, "one", one);
    let again = store.script("-n --slots 2 x", "echo $LEASEHOLD_SLOT");
    assert_eq!(again.is(0, &[]).stdout, "1\n");
    goes(store, "two", two);
    let report = store.document("report");
    assert_eq!(
        (&report["mode"], &report["slot"]),
        (&"slot/2".into(), &2.into())
    );
    store.is_free();
}

fn what_holds_alone_cannot_be_shared(store: &Store) {
    for (words, says) in [
        ("--shared --slots 2 x true", "cannot be used with"),
        ("--shared --also y x true", "cannot be used with"),
        ("--slots 0 x true", "0"),
        ("--slots 1001 x true", "1001"),
        (
            "--shared --once a x true",
            "--shared cannot be used with --once",
        ),
        (
            "--slots 2 --once a x true",
            "--slots cannot be used with --once",
        ),
    ] {
        store.run(words).is(64, &[says]);
    }
    let words = "--shared --protocol timestamp x true";
    store
        .run(words)
        .is(64, &["--shared cannot be used with --protocol timestamp"]);
}

/// The holder that is shown is another one, which ends last.
fn a_run_inside_another_does_not_wait_for_it(store: &Store) {
    let other = holds(store, "--shared --ttl 10m x", "other");
    let nested = "you already hold this lock";
    let inner = |words: &str| format!("{LEASEHOLD} run {words}");
    for words in ["x true", "-n x true", "-w 1h --slots 2 x true"] {
        store.script("--shared x", &inner(words)).is(64, &[nested]);
    }
    let held = format!("mkfifo pipe; exec 3<>pipe; {LEASEHOLD} hold x <&3");
    store.script("--shared x", &held).is(64, &[nested]);
    store.script("--shared x", &inner("-s x true")).is(0, &[]);
    goes(store, "other", other);
    // Another one that holds a slot may give it back, although this one ends first.
    let other = holds(store, "--slots 2 --ttl 10m x", "slot");
    let busy = "\"x\" is busy (exit 75)";
    let outer = "--slots 2 x";
    store
        .script(outer, &inner("-n --slots 2 x true"))
        .is(75, &[busy]);
    for words in ["--slots 1 x true", "x true", "-s x true"] {
        store.script(outer, &inner(words)).is(64, &[nested]);
    }
    goes(store, "slot", other);
}

fn a_break_says_whom_it_ends(store: &Store) {
    let fence = |shown: &str| {
        let shown = json(shown);
        shown["locks"][0]["fence"].as_u64().expect("a number")
    };
    let look = || store.verb("inspect", "--json x").is(0, &[]).stdout;
    let readers = [
        holds(store, "--shared x", "one"),
        holds(store, "--shared x", "two"),
    ];
    let one = "next    leasehold break --if-fence ";
    let missing = ["(ends all: 2 readers)", one, " break --holder "];
    store.verb("break", "x").is(64, &missing);
    let shown = store.verb("inspect", "x").is(0, &[]).stdout;
    assert!(shown.contains(" break --holder "), "{shown}");
    let words = format!("--if-fence {} x", fence(&look()));
    let broken = "\"x\" was broken: it was held by 2 readers, fence ";
    store
        .verb("break", &words)
        .is(0, &[broken, "each learns of it"]);
    drop(readers);
    let _slots = [
        holds(store, "--slots 2 x", "three"),
        holds(store, "--slots 2 x", "four"),
    ];
    store
        .verb("break", "x")
        .is(64, &["(shows all: 2 of 2 slots)"]);
    let shown = json(&look());
    let number = shown["locks"][0]["slot"].as_u64().expect("a number");
    let words = format!("--if-fence {} x", fence(&look()));
    let broken = format!("slot {number} of \"x\" was broken: it was held by ");
    store.verb("break", &words).is(0, &[&broken]);
}

fn a_break_by_id_ends_one_of_several(store: &Store) {
    let look = || json(&store.verb("inspect", "--json x").is(0, &[]).stdout)["locks"][0].take();
    for (kind, whose, all) in [
        ("--shared", "", "2 readers"),
        ("--slots 2", "slot 1 of ", "2 of 2 slots"),
    ] {
        let words = format!("{kind} x");
        // Its holder does not run, so it cannot end by itself.
        let stuck = holds(store, &words, "stuck");
        stuck.stop();
        let id = look()["holder"]["id"].as_str().expect("digits").to_owned();
        let other = holds(store, &words, "other");
        let shown = store.verb("inspect", "x").is(0, &[]).stdout;
        for part in [all, &format!(", id {id}")] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let none = "begins with ffffffff: nothing was broken (exit 75)";
        let none = store
            .verb("break", "--json --holder ffffffff x")
            .is(75, &[none]);
        assert_eq!(none.json()["outcome"], "held");

        let words = format!("--json --holder {} x", &id[..8]);
        let broken = format!("{whose}\"x\" was broken: it was held by ");
        let done = store
            .verb("break", &words)
            .is(0, &[&broken, "; 1 more hold on"]);
        let report = done.json();
        assert_eq!(
            (&report["outcome"], &report["if_holder"]),
            (&"broken".into(), &id[..8].into())
        );
        assert_eq!(report["holder"]["id"], id);
        let left = look();
        assert_ne!(left["holder"]["id"], id);
        assert_eq!(left["others"], serde_json::json!([]));
        store.verb("break", &words).is(75, &["nothing was broken"]);
        store.is_busy();
        std::fs::remove_file(store.file("stuck")).expect("a file");
        std::fs::remove_file(store.file("other")).expect("a file");
        goes(store, "other", other);
        std::fs::remove_file(store.file("other.go")).expect("a file");
    }
    store
        .verb("break", "--holder 01234567 x")
        .is(0, &["\"x\" is free already"]);
}
