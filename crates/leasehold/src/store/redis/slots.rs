//! Which node of a cluster has which slot, as a node tells it: the answer to `CLUSTER SLOTS`.

use std::collections::BTreeMap;
use std::iter;
use std::ops::RangeInclusive;
use std::sync::Arc;

use leasehold_core::SLOTS;
use redis::Value;

use super::address::{Address, Place};
use super::protocol::{array, number, text};

/// The ranges of slots, by their first one.
pub(super) type Told = BTreeMap<u16, Range>;

/// The places of nodes by their host names, for which the certificates are, where nodes name each other by address.
pub(super) type Names = BTreeMap<Place, Place>;

pub(super) struct Range {
    pub(super) last: u16,
    pub(super) primary: Place,
    /// The node id of the primary.
    id: String,
    #[cfg_attr(
        not(feature = "doctor"),
        expect(dead_code, reason = "only the doctor asks them")
    )]
    replicas: Vec<Place>,
}

/// Reads the answer of a node.
pub(super) fn read(value: &Value, from: &Address) -> Option<(Told, Names)> {
    let (mut told, mut names) = (Told::new(), Names::new());
    for range in array(value)? {
        let [first, last, primary, replicas @ ..] = array(range)? else {
            return None;
        };
        let slot = |value| u16::try_from(number(value)?).ok();
        let (first, last) = (slot(first)?, slot(last)?);
        if first > last || last >= SLOTS {
            return None;
        }
        let place = |node| place_of(node, from);
        let range = Range {
            last,
            primary: place(primary)?,
            id: text(array(primary)?.get(2)?)?.to_owned(),
            replicas: replicas.iter().filter_map(place).collect(),
        };
        told.insert(first, range);
        for node in iter::once(primary).chain(replicas) {
            let said = array(node).and_then(|node| said_place(node, from));
            if let Some((said, place)) = said.zip(place(node))
                && said != place
            {
                names.insert(said, place);
            }
        }
    }
    Some((told, names))
}

/// The slots that another primary has now, or none: whoever gets them may not know their locks.
pub(super) fn changed(before: &Told, now: &Told) -> Arc<[RangeInclusive<u16>]> {
    let mut changed = Vec::new();
    for (first, range) in before {
        let later = now.range(..=range.last).rev();
        let later = later.take_while(|(_, later)| later.last >= *first);
        // From the last slot to the first.
        let mut last = Some(range.last);
        for (begin, same) in later.filter(|(_, later)| later.id == range.id) {
            changed.extend(last.map(|last| same.last + 1..=last));
            last = begin.checked_sub(1).filter(|last| last >= first);
        }
        changed.extend(last.map(|last| *first..=last));
    }
    changed.retain(|range| !range.is_empty());
    changed.into()
}

/// A node of a cluster, and the ranges of slots that it has: none, if it is a replica.
#[cfg(feature = "doctor")]
pub(super) type ToldNode = (Place, Vec<RangeInclusive<u16>>);

/// The nodes, the primaries first.
#[cfg(feature = "doctor")]
pub(super) fn nodes(told: Told) -> Vec<ToldNode> {
    let (mut primaries, mut replicas) = (Vec::<ToldNode>::new(), Vec::new());
    for (first, range) in told {
        let slots = first..=range.last;
        match primaries
            .iter_mut()
            .find(|(known, _)| *known == range.primary)
        {
            Some((_, ranges)) => ranges.push(slots),
            None => primaries.push((range.primary, vec![slots])),
        }
        for place in range.replicas {
            if !replicas.contains(&place) {
                replicas.push(place);
            }
        }
    }
    primaries.extend(replicas.into_iter().map(|place| (place, Vec::new())));
    primaries
}

/// A place as a server names it: without a host, it is on the same host. A node may not know its own name, and says `?`.
pub(super) fn beside(from: &Address, (host, port): Place) -> Place {
    match from.place() {
        Some((same, _)) if host.is_empty() || host == "?" => (same, port),
        _ => (host, port),
    }
}

/// Where a node is, in an answer to `CLUSTER SLOTS`.
fn place_of(node: &Value, from: &Address) -> Option<Place> {
    let node = array(node)?;
    let (host, port) = said_place(node, from)?;
    // A certificate is made for a name.
    let name = node.get(3).filter(|_| from.is_encrypted());
    let name = name.and_then(hostname).map(str::to_owned);
    Some((name.unwrap_or(host), port))
}

/// Where nodes say that a node is, also when they send a request there.
fn said_place(node: &[Value], from: &Address) -> Option<Place> {
    let host = node.first().and_then(text).unwrap_or_default();
    let port = u16::try_from(number(node.get(1)?)?).ok()?;
    Some(beside(from, (host.to_owned(), port)))
}

/// The host name in what `CLUSTER SLOTS` adds to a node.
fn hostname(more: &Value) -> Option<&str> {
    let words: Vec<&Value> = match more {
        Value::Map(pairs) => pairs.iter().flat_map(|(key, value)| [key, value]).collect(),
        other => array(other)?.iter().collect(),
    };
    let mut pairs = words.chunks_exact(2);
    let pair = pairs.find(|pair| text(pair[0]) == Some("hostname"))?;
    text(pair[1]).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(ranges: &[(u16, u16, &str)]) -> Told {
        let range = |&(first, last, id): &(u16, u16, &str)| {
            let (primary, id) = ((id.to_owned(), 6379), id.to_owned());
            let replicas = Vec::new();
            let range = Range {
                last,
                primary,
                id,
                replicas,
            };
            (first, range)
        };
        ranges.iter().map(range).collect()
    }

    #[test]
    fn slot_without_its_primary_is_in_doubt() {
        let before = told(&[(0, 99, "a"), (100, 199, "b")]);
        let by = |now: &[(u16, u16, &str)]| changed(&before, &told(now)).to_vec();
        assert!(by(&[(0, 99, "a"), (100, 16_383, "b")]).is_empty());
        assert!(by(&[(0, 49, "a"), (50, 99, "a"), (100, 199, "b")]).is_empty());
        assert_eq!(by(&[(0, 99, "a"), (100, 199, "c")]), [100..=199]);
        assert_eq!(
            by(&[(0, 9, "a"), (10, 10, "b"), (11, 99, "a"), (100, 199, "b")]),
            [10..=10]
        );
        assert_eq!(by(&[(0, 150, "a"), (151, 199, "b")]), [100..=150]);
        // No node has them for now.
        assert_eq!(by(&[(10, 99, "a")]), [0..=9, 100..=199]);
        assert_eq!(
            by(&[(0, 49, "a"), (120, 149, "b")]),
            [50..=99, 150..=199, 100..=119]
        );
    }
}
