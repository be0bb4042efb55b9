//! Serialization of what an operator sees of a lock: durations are whole milliseconds, in fields named `..._ms`. Tokens and
//! values of foreign locks are never written, since either is enough to free the lock.

use std::time::Duration;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::owner::{ClientId, Owner};
use crate::state::Mode;
use crate::step::{HolderIdentity, HolderView, Snapshot, WaiterView};
use crate::time::millis;

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
        party(&mut shown, self)?;
        shown.end()
    }
}

fn party<S: SerializeStruct>(shown: &mut S, owner: &Owner) -> Result<(), S::Error> {
    shown.serialize_field("host", &owner.host())?;
    shown.serialize_field("pid", &owner.pid())?;
    shown.serialize_field("note", &owner.note())?;
    shown.serialize_field("client", &owner.client())
}

/// `kind` is `leasehold`, with what [`Owner`] says, or `foreign`, with the `type` of the key and no value.
impl Serialize for HolderIdentity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Owner(owner) => {
                let mut shown = serializer.serialize_struct("HolderIdentity", 5)?;
                shown.serialize_field("kind", "leasehold")?;
                party(&mut shown, owner)?;
                shown.end()
            }
            Self::Foreign { kind, .. } => {
                let mut shown = serializer.serialize_struct("HolderIdentity", 2)?;
                shown.serialize_field("kind", "foreign")?;
                shown.serialize_field("type", kind)?;
                shown.end()
            }
        }
    }
}

/// One lower-case word.
impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Exclusive => "exclusive",
        })
    }
}

impl Serialize for HolderView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let in_ms = |duration: Option<Duration>| duration.map(millis);
        let mut shown = serializer.serialize_struct("HolderView", 4)?;
        shown.serialize_field("who", &self.who)?;
        shown.serialize_field("fence", &self.fence)?;
        shown.serialize_field("held_for_ms", &in_ms(self.held_for))?;
        shown.serialize_field("expires_in_ms", &in_ms(self.expires_in))?;
        shown.end()
    }
}

impl Serialize for WaiterView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut shown = serializer.serialize_struct("WaiterView", 4)?;
        shown.serialize_field("owner", &self.owner)?;
        shown.serialize_field("mode", &self.mode)?;
        shown.serialize_field("ttl_ms", &self.ttl.millis())?;
        shown.serialize_field("seen_for_ms", &millis(self.seen_for))?;
        shown.end()
    }
}

impl Serialize for Snapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut shown = serializer.serialize_struct("Snapshot", 2)?;
        shown.serialize_field("holder", &self.holder)?;
        shown.serialize_field("queue", &self.queue)?;
        shown.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{json, to_value};

    use super::*;
    use crate::{Fence, Ttl};

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
