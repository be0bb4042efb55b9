//! Compares `docs/reference/json.md` with the written documents.

use std::collections::{BTreeMap, BTreeSet};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{Store, json, on_each_store};

on_each_store! {
    the_documented_json_is_what_is_written,
}

/// The samples in `docs/reference/json.md` have exactly the fields that are written for each schema.
fn the_documented_json_is_what_is_written(store: &Store) {
    let mut written = Vec::new();
    let watching = store.verb("watch", "--json --interval 50ms x").start();
    watching.until_it_writes("\"event\":\"free\"");
    let holder = store.hold();
    watching.until_it_writes("\"event\":\"acquired\"");
    let waiter = store.queue_up();
    written.push(store.json("inspect", "x y", 0));
    written.push(store.json("wait", "-w 0 x", 124));
    written.push(store.json("leader", "x", 0));
    written.push(store.json("break", "--if-fence 1 x", 75));
    for server in store.redis.iter().chain(&store.quorum) {
        server.cli(&["SET", "py", "d2f1c9a08c3b11ef9d3c0242ac120002"]);
        server.cli(&["SET", "{odd}:lh-queue", "7"]);
    }
    let is_local = store.is_local();
    if !is_local {
        written.push(store.json("inspect", "py", 0));
        written.push(store.json("inspect", "odd", 78));
    }
    store.let_go();
    holder.ends(0, &[]);
    waiter.ends(0, &[]);
    watching.until_it_writes("\"event\":\"released\"");
    watching.signal(Signal::SIGTERM);
    let watched = watching.end().stdout;
    written.extend(watched.lines().map(json));
    let mut schemas = vec!["inspect", "leader", "wait", "watch", "break"];
    if cfg!(feature = "cache") && store.quorum.is_empty() {
        let get = store.leasehold("cache get --json x").output();
        written.push(get.json());
        schemas.push("cache-get");
    }

    let text = include_str!("../../../../../docs/reference/json.md");
    let blocks = text.split("```json\n").skip(1);
    let samples: Vec<Value> = blocks
        .flat_map(|block| {
            let block = block.split("```").next().unwrap_or_default();
            serde_json::Deserializer::from_str(block).into_iter()
        })
        .collect::<Result<_, _>>()
        .expect("samples are JSON");
    let (samples, written) = (fields(&samples), fields(&written));
    for schema in schemas {
        let schema = format!("leasehold.{schema}/1");
        let (shown, real) = (&samples[&schema], &written[&schema]);
        // The store of one host has no foreign locks.
        let real_only: Vec<_> = real.difference(shown).collect();
        assert!(real_only.is_empty(), "{schema}: not shown: {real_only:?}");
        if !is_local {
            let shown_only: Vec<_> = shown
                .difference(real)
                .filter(|path| !path.contains("error") || schema.contains("inspect"))
                .filter(|path| !path.contains(".nodes[]") || !store.quorum.is_empty())
                .collect();
            assert!(
                shown_only.is_empty(),
                "{schema}: not written: {shown_only:?}"
            );
        }
    }
}

/// The fields that documents have, by schema: `locks[].holder.pid`.
fn fields(documents: &[Value]) -> BTreeMap<String, BTreeSet<String>> {
    fn collect(value: &Value, path: &str, into: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    let path = format!("{path}.{name}");
                    collect(member, &path, into);
                    into.insert(path);
                }
            }
            Value::Array(items) => items
                .iter()
                .for_each(|item| collect(item, &format!("{path}[]"), into)),
            _ => {}
        }
    }
    let mut fields: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for document in documents {
        let schema = document["schema"].as_str().expect("a schema").to_owned();
        collect(document, "", fields.entry(schema).or_default());
    }
    fields
}
