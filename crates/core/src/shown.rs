//! Serialization of what an operator sees of a lock: durations are whole milliseconds, in fields named `..._ms`. Tokens and
//! values of foreign locks are never written, since either is enough to free the lock.
//!
//! A holder's `kind` is `leasehold`, with what [`Owner`] says, or `foreign`, with the `type` of the key and no value.

use std::time::Duration;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::owner::{ClientId, Owner};
use crate::time::{Ttl, millis};

/// 16 hexadecimal digits.
impl Serialize for ClientId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Without its token.
impl Serialize for Owner {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut shown = serializer.serialize_struct("Owner", 4)?;
        shown.serialize_field("host", &self.host())?;
        shown.serialize_field("pid", &self.pid())?;
        shown.serialize_field("note", &self.note())?;
        shown.serialize_field("client", &self.client())?;
        shown.end()
    }
}

pub(crate) fn ms<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    millis(*duration).serialize(serializer)
}

#[expect(clippy::ref_option, reason = "serde passes a reference to a field")]
pub(crate) fn some_ms<S: Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    duration.map(millis).serialize(serializer)
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference to a field"
)]
pub(crate) fn ttl_ms<S: Serializer>(ttl: &Ttl, serializer: S) -> Result<S::Ok, S::Error> {
    ttl.millis().serialize(serializer)
}

#[cfg(test)]
mod tests {
    use serde_json::{json, to_value};

    use super::*;
    use crate::{Fence, HolderIdentity, HolderView, Mode, Slots, Snapshot, WaiterView};

    #[test]
    fn lock_is_shown_without_token() {
        let owner = |random| {
            Owner::new(
                random,
                ClientId::new(9),
                "deploy@web-3",
                4121,
                "v2: roll out",
            )
            .unwrap()
        };
        let party = json!({"host": "deploy@web-3", "pid": 4121, "note": "v2: roll out", "client": "0000000000000009"});
        let holder = HolderView::new(
            HolderIdentity::Owner(owner(0xfeed)),
            Some(Fence::new(41)),
            Some(Duration::from_micros(1_500_900)),
            None,
        );
        let ttl = Ttl::new(Duration::from_secs(30)).unwrap();
        let seen_for = Duration::from_secs(5);
        let waiter = WaiterView::new(owner(0xbeef), Mode::Exclusive, ttl, seen_for);
        let snapshot = Snapshot::new(Some(holder), vec![waiter]);
        let mut who = party.clone();
        who["kind"] = "leasehold".into();
        let shown = to_value(&snapshot).unwrap();
        assert_eq!(
            shown,
            json!({
                "holder": {"who": who, "mode": "exclusive", "fence": 41, "held_for_ms": 1500, "expires_in_ms": null},
                "queue": [{"owner": party, "mode": "exclusive", "ttl_ms": 30_000, "seen_for_ms": 5_000}],
            })
        );
        let text = shown.to_string();
        assert!(!text.contains("feed") && !text.contains("beef"), "{text}");
    }

    /// The fields `slot`, `others` and `omitted` are there only where they say something.
    #[test]
    fn holders_of_slots_are_shown_with_their_numbers() {
        let mode = Mode::Slot(Slots::new(4).unwrap());
        let holder = |number: u16| {
            let owner = Owner::new(number.into(), ClientId::new(9), "web-3", 4121, "").unwrap();
            let (fence, left) = (Fence::new(number.into()), Duration::from_secs(1));
            let view = HolderView::new(HolderIdentity::Owner(owner), Some(fence), None, Some(left));
            view.in_mode(mode, Some(number))
        };
        let shown = |number| {
            let who = json!({"kind": "leasehold", "host": "web-3", "pid": 4121, "note": "", "client": "0000000000000009"});
            json!({"who": who, "mode": "slot/4", "slot": number, "fence": number, "held_for_ms": null, "expires_in_ms": 1000})
        };
        let one = Snapshot::new(Some(holder(1)), vec![]);
        assert_eq!(
            to_value(&one).unwrap(),
            json!({"holder": shown(1), "queue": []})
        );
        let others = vec![holder(2), holder(3)];
        let several = one.clone().with_others(others.clone(), 0);
        assert_eq!(several.holders().count(), 3);
        assert_eq!(
            to_value(several).unwrap(),
            json!({"holder": shown(1), "others": [shown(2), shown(3)], "queue": []})
        );
        assert_eq!(
            to_value(one.with_others(others, 7)).unwrap(),
            json!({"holder": shown(1), "others": [shown(2), shown(3)], "omitted": 7, "queue": []})
        );
    }

    #[test]
    fn a_waiter_is_shown_with_its_mode() {
        let owner = Owner::new(1, ClientId::new(9), "web-3", 4121, "").unwrap();
        let ttl = Ttl::new(Duration::from_secs(30)).unwrap();
        let waiter = WaiterView::new(owner, Mode::Shared, ttl, Duration::ZERO);
        assert_eq!(to_value(waiter).unwrap()["mode"], "shared");
    }

    /// It excludes all others, whatever it is.
    #[test]
    fn another_program_holds_alone() {
        let (kind, value) = ("hash".into(), vec![]);
        let who = HolderIdentity::Foreign { kind, value };
        let shown = to_value(HolderView::new(who, None, None, None)).unwrap();
        assert_eq!(
            (&shown["mode"], shown.get("slot")),
            (&json!("exclusive"), None)
        );
    }

    #[test]
    fn the_value_of_a_foreign_lock_is_not_written() {
        let who = HolderIdentity::Foreign {
            kind: "string".into(),
            value: b"hunter2".to_vec(),
        };
        assert_eq!(
            to_value(&who).unwrap(),
            json!({"kind": "foreign", "type": "string"})
        );
    }
}
