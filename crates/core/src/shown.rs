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
    use crate::{Fence, HolderIdentity, HolderView, Mode, Snapshot, WaiterView};

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
        let snapshot = Snapshot {
            holder: Some(HolderView {
                who: HolderIdentity::Owner(owner(0xfeed)),
                fence: Some(Fence::new(41)),
                held_for: Some(Duration::from_micros(1_500_900)),
                expires_in: None,
            }),
            queue: vec![WaiterView {
                owner: owner(0xbeef),
                mode: Mode::Exclusive,
                ttl: Ttl::new(Duration::from_secs(30)).unwrap(),
                seen_for: Duration::from_secs(5),
            }],
        };
        let mut who = party.clone();
        who["kind"] = "leasehold".into();
        let shown = to_value(&snapshot).unwrap();
        assert_eq!(
            shown,
            json!({
                "holder": {"who": who, "fence": 41, "held_for_ms": 1500, "expires_in_ms": null},
                "queue": [{"owner": party, "mode": "exclusive", "ttl_ms": 30_000, "seen_for_ms": 5_000}],
            })
        );
        let text = shown.to_string();
        assert!(!text.contains("feed") && !text.contains("beef"), "{text}");
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
