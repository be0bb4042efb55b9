//! Reads the messages that scripts publish on a client's channel. A message of an unknown form is ignored.

use leasehold_core::{Block, ClientId, Owner, Wake};

use super::codec::reply::{block_of, fence_in};
use crate::store::contract::Notice;

/// The channel of a client. `acquire.lua` builds this name from the holder's token.
pub(super) fn channel(client: ClientId) -> String {
    format!("leasehold:wake:{client}")
}

/// Reads an invalidation message for cache entries: an array of keys, or nil for all keys. A message of another form
/// counts as one for all keys.
#[cfg(feature = "entries")]
pub(super) fn changed(pushed: &[redis::Value]) -> Notice {
    let keys = match pushed {
        [redis::Value::Array(keys)] => {
            let text = |key: &redis::Value| redis::from_redis_value_ref::<String>(key).ok();
            keys.iter().map(text).collect()
        }
        _ => None,
    };
    Notice::Changed { keys }
}

/// Reads `granted <fence>[/<how many>] <at us> <queued after the grant> <token> <key>`, `wanted <holder's token>
/// <key>`, `first <waiter's token> <key>` and `loaded <key>`. The key comes last, since it may contain spaces. `-`
/// stands for an unknown fence.
pub(super) fn parse(payload: &[u8]) -> Option<Notice> {
    let (verb, rest) = std::str::from_utf8(payload).ok()?.split_once(' ')?;
    match verb {
        "granted" => {
            let mut words = rest.splitn(5, ' ');
            let mut next = || words.next();
            let (fences, at_us, queued) = (next()?, next()?, next()?);
            let (fence, block) = if fences == "-" {
                (None, Block::ONE)
            } else {
                let (fence, more) = fences.split_at(fences.find('/').unwrap_or(fences.len()));
                (Some(fence_in(fence)?), block_of(more)?)
            };
            let wake = Wake {
                fence,
                block,
                at_us: at_us.parse().ok()?,
                queued: queued.parse().ok()?,
                owner: Owner::parse(next()?)?,
            };
            let key = next()?.to_owned();
            Some(Notice::Granted { key, wake })
        }
        "wanted" | "first" => {
            let (token, key) = rest.split_once(' ')?;
            let owner = Owner::parse(token)?;
            Some(match verb {
                "wanted" => {
                    let key = key.to_owned();
                    Notice::Wanted { key, owner }
                }
                _ => Notice::First { owner },
            })
        }
        #[cfg(feature = "entries")]
        "loaded" => {
            let key = rest.to_owned();
            Some(Notice::LoadEnded { key })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::Fence;

    use super::*;

    const TOKEN: &str = "lh1.00000000000000000000000000000005.0000000000000009.h:1:";

    #[test]
    fn the_messages_of_the_document_are_understood() {
        let text = include_str!("../../../../../docs/reference/protocol.md");
        let table = text.split("<!-- vectors:messages ").nth(1).unwrap();
        let rows = table.split("<!-- end -->").next().unwrap().lines();
        let rows = rows.filter(|line| line.starts_with('|')).skip(2);
        let mut verbs = Vec::new();
        for row in rows {
            let cells: Vec<&str> = row
                .split('|')
                .map(|cell| cell.trim().trim_matches('`'))
                .collect();
            let [_, message, verb, fence, at, queued, client, name, _] = cells[..] else {
                panic!("{row}")
            };
            let number = |text: &str| text.parse::<u64>().unwrap();
            verbs.push(verb);
            let owner = match parse(message.as_bytes()) {
                Some(Notice::Granted { key, wake }) if verb == "granted" => {
                    let said = (fence != "none").then(|| Fence::new(number(fence)));
                    assert_eq!(wake.fence, said);
                    assert_eq!(
                        (wake.at_us, wake.queued.into()),
                        (number(at), number(queued))
                    );
                    assert_eq!(key, name);
                    wake.owner
                }
                Some(Notice::Wanted { key, owner }) if verb == "wanted" => {
                    assert_eq!(key, name);
                    owner
                }
                Some(Notice::First { owner }) if verb == "first" => owner,
                other => panic!("{row}: {other:?}"),
            };
            assert_eq!(owner.client().get(), number(client));
        }
        assert_eq!(verbs, ["granted", "granted", "wanted", "first"]);
    }

    #[cfg(feature = "entries")]
    #[test]
    fn the_end_of_a_load_names_its_key() {
        match parse("loaded größe 7 %".as_bytes()) {
            Some(Notice::LoadEnded { key }) => assert_eq!(key, "größe 7 %"),
            other => panic!("{other:?}"),
        }
        assert!(parse(b"loaded").is_none());
    }

    #[test]
    fn what_has_another_form_is_no_notice() {
        for other in [
            "",
            "granted",
            &format!("granted 64 7000001 2 {TOKEN}"),
            &format!("granted x 7000001 2 {TOKEN} key"),
            "granted 64 7000001 2 someone key",
            "wanted someone key",
            "first someone key",
            &format!("granted -1 7000001 2 {TOKEN} key"),
            // The form before the verbs were introduced.
            &format!("64 {TOKEN} key"),
        ] {
            assert!(parse(other.as_bytes()).is_none(), "{other}");
        }
        assert!(parse(b"wanted \xff key").is_none());
    }
}
