//! The side of Redis: a real server whose clock the test controls, used through the production scripts and codec.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::cache::{
    BackOff, Begin, Control, EntryState, Loader, Step, Token, Value, Version,
};
use leasehold_core::{ClientId, LockName};
use testkit::Reply;

use super::super::super::by_script;
use crate::store::entries::Taken;
use crate::store::redis::tests::Scene;

/// The step as the rules see it: without a listener if the connection is not subscribed.
pub(super) fn as_heard(step: &Step, listens: bool) -> Step {
    match step {
        Step::Begin(begin) if !listens => Step::Begin(Begin {
            listener: None,
            ..*begin
        }),
        other => other.clone(),
    }
}

impl Scene {
    pub(super) fn take(
        &mut self,
        key: &LockName,
        step: &Step,
        listens: bool,
    ) -> Result<Taken, String> {
        let tag = listens.then(String::new);
        let taken = by_script(&self.scripts, &mut self.wire, key, step, tag);
        let taken = self.runtime.block_on(taken);
        taken.map_err(|error| error.to_string())
    }

    /// Reads the stored state, translated to core's types.
    pub(super) fn state(&mut self, key: &LockName, now_ms: u64) -> Result<EntryState, String> {
        let (entry, control) = (key.key().to_owned(), key.beside(":lh-cache"));
        let replies = self.commands(&[
            &["TYPE", &entry],
            &["GET", &entry],
            &["PTTL", &entry],
            &["TYPE", &control],
            &["HGETALL", &control],
            &["PTTL", &control],
            &["DBSIZE"],
        ]);
        let [kind, value, left, control_kind, fields, control_left, count] = &replies[..] else {
            unreachable!("seven commands")
        };
        let mut state = EntryState::default();
        let until = |left: &Reply| {
            let left = u64::try_from(left.int()).map_err(|_| "a key of ours without a TTL")?;
            Ok::<_, String>(now_ms + left)
        };
        match kind.text().as_str() {
            "none" => {}
            "string" => match Value::read(value.bytes()) {
                Some(value) => state.value = Some((value, until(left)?)),
                None => state.foreign = Some("string".into()),
            },
            other => state.foreign = Some(other.to_owned()),
        }
        let fields: BTreeMap<String, String> = match control_kind.text().as_str() {
            "hash" => (fields.array().chunks(2))
                .map(|pair| (pair[0].text(), pair[1].text()))
                .collect(),
            _ => BTreeMap::new(),
        };
        match control_kind.text().as_str() {
            "none" => {}
            "hash" if fields.contains_key("epoch") => {
                state.control = Some(read(&fields, until(control_left)?)?);
            }
            other => state.foreign = Some(other.to_owned()),
        }
        let keys = [kind, control_kind];
        let keys = keys.iter().filter(|kind| kind.text() != "none").count();
        if usize::try_from(count.int()) != Ok(keys) {
            return Err(format!("{count:?} keys are left, {keys} expected"));
        }
        state.expire(leasehold_core::Now::at_micros(now_ms * 1_000));
        Ok(state)
    }
}

/// Reads a control without the production code, and checks that it has no other fields.
fn read(fields: &BTreeMap<String, String>, forget_at_ms: u64) -> Result<Control, String> {
    let text = |field: &str| fields.get(field).map(String::as_str);
    let number = |field: &str| {
        let parse = |text: &str| text.parse::<u64>();
        text(field)
            .map(parse)
            .transpose()
            .map_err(|error| format!("{field}: {error}"))
    };
    let some = |field| number(field)?.ok_or(format!("no {field} in {fields:?}"));
    let mut known = 2;
    let mut has = |field: &str, with: usize| {
        let there = fields.contains_key(field);
        known += if there { with } else { 0 };
        there
    };
    let loader = if has("token", 3) {
        Some(Loader {
            token: Token(
                u128::from_str_radix(text("token").unwrap(), 16).map_err(|e| e.to_string())?,
            ),
            version: Version::new(some("version")?),
            until_ms: some("until")?,
        })
    } else {
        None
    };
    let back_off = if has("back_off_until", 2) {
        Some(BackOff {
            until_ms: some("back_off_until")?,
            error: text("error").ok_or("no error")?.to_owned(),
        })
    } else {
        None
    };
    has("failures", 1);
    let waiting: BTreeSet<ClientId> = fields
        .keys()
        .filter_map(|field| field.strip_prefix("w:"))
        .map(|id| u64::from_str_radix(id, 16).map(ClientId::new))
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    if fields.len() != known + waiting.len() {
        return Err(format!("something else is in {fields:?}"));
    }
    Ok(Control {
        last: Version::new(some("last")?),
        epoch: Version::new(some("epoch")?),
        loader,
        back_off,
        failures: u32::try_from(number("failures")?.unwrap_or(0)).map_err(|e| e.to_string())?,
        waiting,
        forget_at_ms,
    })
}
