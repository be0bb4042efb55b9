//! Steps that go to all nodes, and the answer of the quorum to each, from the answers of its nodes.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::convert::identity;
use std::time::Duration;

use leasehold_core::{Fence, Held, HolderIdentity, HolderView, Owner, Reply, Snapshot};

use crate::error::{StoreError, StoreErrorKind};
use crate::store::contract::Answer;

/// The answers of the nodes so far; `None` where there is none yet.
type Answers = [Option<Answer>];

/// A question to all nodes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Question {
    /// A renewal, a release or a break: a majority has to confirm it.
    Confirm,
    /// The release of an owner without a certificate.
    Leave { lead: usize, is_ours: bool },
}

/// The steps whose answers are judged together.
pub(super) struct Gatherings<C> {
    open: HashMap<u64, Gathering<C>>,
    next: u64,
}

struct Gathering<C> {
    answers: Vec<Option<Answer>>,
    question: Question,
    /// Taken when the answer is known.
    caller: Option<C>,
    /// A majority has renewed the lease.
    is_renewed: bool,
}

/// What the answer of a node decides.
pub(super) struct Judged<C> {
    /// The answer of the quorum, if it is known now and not before.
    pub(super) answer: Option<(C, Answer)>,
    /// A majority has renewed the lease.
    pub(super) is_renewed: bool,
    /// The nodes that lack the vote of a lease that a majority has renewed, or may have renewed; each is told once.
    pub(super) lacking: Vec<usize>,
}

impl<C> Gatherings<C> {
    pub(super) fn new() -> Self {
        Self {
            open: HashMap::new(),
            next: 0,
        }
    }

    /// Begins to gather the answers of so many nodes.
    pub(super) fn begin(&mut self, nodes: usize, question: Question, caller: C) -> u64 {
        self.next += 1;
        let gathering = Gathering {
            answers: vec![None; nodes],
            question,
            caller: Some(caller),
            is_renewed: false,
        };
        self.open.insert(self.next, gathering);
        self.next
    }

    /// Counts the answer of a node.
    pub(super) fn heard(
        &mut self,
        number: u64,
        node: usize,
        answer: Answer,
        label: &str,
    ) -> Option<Judged<C>> {
        let gathering = self.open.get_mut(&number)?;
        gathering.answers[node] = Some(answer);
        let answer = match gathering.caller {
            Some(_) => judge(gathering.question, &gathering.answers, label),
            None => None,
        };
        let was_renewed = gathering.is_renewed;
        gathering.is_renewed |= matches!(answer, Some(Ok(Reply::Held(_))));
        let (is_renewed, is_open) = (gathering.is_renewed, matches!(answer, Some(Err(_))));
        let is_new = |at: &usize| is_open || is_renewed && (!was_renewed || *at == node);
        let lacks = |at: &usize| matches!(gathering.answers[*at], Some(Ok(Reply::NotHeld(_))));
        let nodes = 0..gathering.answers.len();
        let lacking = nodes.filter(is_new).filter(lacks).collect();
        let judged = Judged {
            answer: answer.and_then(|answer| Some((gathering.caller.take()?, answer))),
            is_renewed,
            lacking,
        };
        if gathering.answers.iter().all(Option::is_some) {
            self.open.remove(&number);
        }
        Some(judged)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}

/// Judges the answers. Returns `None` while more are needed; with all answers, it decides.
fn judge(question: Question, answers: &Answers, label: &str) -> Option<Answer> {
    match question {
        Question::Confirm => confirmed(answers, label),
        Question::Leave { lead, is_ours } => left(answers, lead, is_ours, label),
    }
}

/// How many nodes are a majority.
pub(super) const fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Judges a step that a majority has to confirm: a renewal, a release or a break.
fn confirmed(answers: &Answers, label: &str) -> Option<Answer> {
    let needed = majority(answers.len());
    let said = |is: fn(&Reply) -> bool| {
        let replies = answers.iter().flatten().flatten();
        replies.filter(|reply| is(reply)).count()
    };
    let held = said(|reply| matches!(reply, Reply::Held(_)));
    if held >= needed {
        return Some(Ok(Reply::Held(held_by_most(answers)?)));
    }
    let released = said(|reply| matches!(reply, Reply::Released));
    if released >= needed {
        return Some(Ok(Reply::Released));
    }
    let refused = said(|reply| matches!(reply, Reply::NotHeld(_)));
    // Even if each other node confirmed it, a majority would be missing.
    if answers.len() - refused < needed {
        return Some(Ok(Reply::NotHeld(other_holder(answers).map(Box::new))));
    }
    answers
        .iter()
        .all(Option::is_some)
        .then(|| Err(no_majority(answers, label)))
}

/// Judges the release of an owner that has no certificate. It may wait in the queue of the lead, which alone knows it. If the lead has not
/// answered yet, it leaves that queue when it does: the release is repeated until then (V1). Of another client's owner, a majority or the
/// lead has to say whether it was there.
fn left(answers: &Answers, lead: usize, is_ours: bool, label: &str) -> Option<Answer> {
    let replies = || answers.iter().flatten().flatten();
    if replies().count() < majority(answers.len()) {
        let all = answers.iter().all(Option::is_some);
        return all.then(|| Err(no_majority(answers, label)));
    }
    let released = replies().filter(|reply| matches!(reply, Reply::Released));
    let released = released.count();
    let leaves = answers[lead].is_none();
    if leaves && !is_ours && released < majority(answers.len()) {
        return None;
    }
    Some(Ok(if released > 0 || leaves {
        Reply::Released
    } else {
        Reply::NotHeld(other_holder(answers).map(Box::new))
    }))
}

/// The hold that most nodes report; of two, the one with the higher fence.
fn held_by_most(answers: &Answers) -> Option<Held> {
    let held = || {
        answers.iter().flatten().filter_map(|answer| match answer {
            Ok(Reply::Held(held)) => Some(held),
            _ => None,
        })
    };
    let queued = held().map(|held| held.queued).max()?;
    let count = |fence: Option<Fence>| held().filter(|held| held.fence == fence).count();
    let best = held().max_by_key(|held| (count(held.fence), held.fence))?;
    Some(Held {
        queued,
        ..best.clone()
    })
}

/// The holder that most nodes name. A node counts since when from the fence, which here comes from the clock of a client: no client
/// may conclude from it whether the holder came before a release (U2).
fn other_holder(answers: &Answers) -> Option<HolderView> {
    let views = answers.iter().flatten().filter_map(|answer| match answer {
        Ok(Reply::NotHeld(holder)) => holder.as_deref(),
        Ok(Reply::Busy(busy)) => Some(&busy.holder),
        _ => None,
    });
    let mut holder = most_frequent(views, identity)?.holder.clone();
    holder.held_for = None;
    Some(holder)
}

/// The holder that most nodes name.
pub(super) struct Named<'a> {
    /// How many nodes name this owner.
    pub(super) count: usize,
    /// How many of them name it with the fence of `holder`.
    alike: usize,
    pub(super) holder: &'a HolderView,
}

/// The holder that occurs most often, with the fence that occurs most often. A majority has the fence of the certificate, but a node may
/// have granted the lock to its holder with another one. `rank` decides between fences that occur equally often.
pub(super) fn most_frequent<'a, R: Ord>(
    holders: impl Iterator<Item = &'a HolderView>,
    rank: impl Fn(Option<Fence>) -> R,
) -> Option<Named<'a>> {
    named(holders, rank).max_by_key(|named| (named.count, named.holder.fence))
}

/// The holders that occur, each as in [`most_frequent`].
fn named<'a, R: Ord>(
    holders: impl Iterator<Item = &'a HolderView>,
    rank: impl Fn(Option<Fence>) -> R,
) -> impl Iterator<Item = Named<'a>> {
    let mut views: HashMap<HolderKey<'_>, Vec<&HolderView>> = HashMap::new();
    for holder in holders {
        views.entry(HolderKey::of(holder)).or_default().push(holder);
    }
    views.into_values().filter_map(move |views| {
        let alike = |holder: &HolderView| {
            let alike = views.iter().filter(|view| view.fence == holder.fence);
            alike.count()
        };
        let best = views
            .iter()
            .max_by_key(|view| (alike(view), rank(view.fence)))?;
        Some(Named {
            count: views.len(),
            alike: alike(best),
            holder: best,
        })
    })
}

#[derive(PartialEq, Eq, Hash)]
enum HolderKey<'a> {
    Owner(&'a Owner),
    Foreign(&'a str, &'a [u8]),
}

impl<'a> HolderKey<'a> {
    fn of(holder: &'a HolderView) -> Self {
        match &holder.who {
            HolderIdentity::Owner(owner) => Self::Owner(owner),
            HolderIdentity::Foreign { kind, value } => Self::Foreign(kind, value),
        }
    }
}

/// Whether the answers that are missing cannot make another holder of a lock that is looked at, nor another fence: some nodes may hold
/// for the holder by a higher one.
pub(super) fn is_seen(answers: &Answers) -> bool {
    let snapshots = answers.iter().flatten().filter_map(|answer| match answer {
        Ok(Reply::Seen(snapshot)) => Some(&**snapshot),
        _ => None,
    });
    let open = answers.iter().filter(|answer| answer.is_none()).count();
    let needed = majority(answers.len());
    let mut named = named(snapshots.flat_map(Snapshot::holders), identity);
    open < needed
        && named.all(|Named { count, alike, .. }| {
            let is_fence_known = alike >= needed || alike + open < needed;
            count >= needed && is_fence_known || count + open < needed
        })
}

/// Judges a look by the answers of all nodes. Each owner holds that a majority names; the queue is that of the lead.
pub(super) fn seen(answers: &[Answer], lead: usize, label: &str) -> Answer {
    let needed = majority(answers.len());
    let snapshots = || {
        answers.iter().filter_map(|answer| match answer {
            Ok(Reply::Seen(snapshot)) => Some(&**snapshot),
            _ => None,
        })
    };
    if snapshots().count() < needed {
        let answers: Vec<_> = answers.iter().cloned().map(Some).collect();
        return Err(no_majority(&answers, label));
    }
    let queue = match &answers[lead] {
        Ok(Reply::Seen(seen)) => seen.queue.clone(),
        _ => longest_queue(snapshots()),
    };
    let views = || snapshots().flat_map(Snapshot::holders);
    let named = named(views(), identity).filter(|named| named.count >= needed);
    let holders = named.map(|named| {
        let mut holder = named.holder.clone();
        // Until a majority holds for it no longer.
        let alike = views().filter(|view| view.who == holder.who);
        let mut left: Vec<_> = alike.map(|view| view.expires_in).collect();
        left.sort_by_key(|left| Reverse(left.unwrap_or(Duration::MAX)));
        holder.expires_in = left[needed - 1];
        holder
    });
    let mut holders: Vec<_> = holders.collect();
    holders.sort_by_cached_key(|holder| {
        let left = holder.expires_in.unwrap_or(Duration::MAX);
        let token = match &holder.who {
            HolderIdentity::Owner(owner) => owner.token().to_owned(),
            HolderIdentity::Foreign { .. } => String::new(),
        };
        (Reverse(left), token)
    });
    // As many as a majority counts.
    let mut counts: Vec<_> = snapshots()
        .map(|seen| seen.holders().count() + seen.omitted as usize)
        .collect();
    counts.sort_unstable_by_key(|count| Reverse(*count));
    let omitted = match holders.len() {
        shown @ Snapshot::SHOWN.. => counts[needed - 1].saturating_sub(shown),
        _ => 0,
    };
    let omitted = u32::try_from(omitted).unwrap_or(u32::MAX);
    let mut holders = holders.into_iter();
    let seen = Snapshot::new(holders.next(), queue);
    let seen = seen.with_others(holders.collect(), omitted);
    Ok(Reply::Seen(Box::new(seen)))
}

fn longest_queue<'a>(
    snapshots: impl Iterator<Item = &'a Snapshot>,
) -> Vec<leasehold_core::WaiterView> {
    let longest = snapshots.max_by_key(|seen| seen.queue.len());
    longest.map_or_else(Vec::new, |seen| seen.queue.clone())
}

/// The error of a step that no majority answered.
fn no_majority(answers: &Answers, label: &str) -> StoreError {
    let answers_so_far = || answers.iter().flatten();
    let failed = answers_so_far().filter_map(|answer| answer.as_ref().err());
    let mut error = without_majority(failed, answers.len(), label);
    error.may_have_taken_effect = answers_so_far().any(|answer| match answer {
        Ok(Reply::Held(_) | Reply::Released) => true,
        Ok(_) => false,
        Err(error) => error.may_have_taken_effect,
    });
    error
}

/// The error whose kind tells the caller most, of errors of these kinds: a wrong setting if it leaves no majority, however often the client
/// tries; else the first one that may pass.
fn telling(kinds: &[StoreErrorKind], nodes: usize) -> Option<usize> {
    let is_final = is_final(wrong(kinds), nodes);
    let told = kinds.iter().position(|kind| is_wrong(*kind) == is_final);
    told.or((!kinds.is_empty()).then_some(0))
}

/// Whether the answers that are still missing decide if a wrong setting leaves no majority.
pub(super) fn is_undecided(kinds: &[StoreErrorKind], missing: usize, nodes: usize) -> bool {
    let wrong = wrong(kinds);
    wrong > 0 && !is_final(wrong, nodes) && is_final(wrong + missing, nodes)
}

/// How many of these errors say that a setting is wrong.
fn wrong(kinds: &[StoreErrorKind]) -> usize {
    kinds.iter().filter(|kind| is_wrong(**kind)).count()
}

/// Whether only another setting mends this: of a quorum, or of a certificate.
fn is_wrong(kind: StoreErrorKind) -> bool {
    matches!(
        kind,
        StoreErrorKind::Misconfigured | StoreErrorKind::Untrusted
    )
}

/// Whether so many nodes that refuse a setting leave no majority.
fn is_final(wrong: usize, nodes: usize) -> bool {
    wrong > nodes - majority(nodes)
}

/// The error of a request for which too few of the nodes are left. It names each node that failed, and each reason once. The reason that
/// gave the kind comes first: programs look for words that belong to the kind.
pub(super) fn without_majority<'a>(
    failed: impl Iterator<Item = &'a StoreError>,
    nodes: usize,
    label: &str,
) -> StoreError {
    let mut failed: Vec<_> = failed.collect();
    let kinds: Vec<_> = failed.iter().map(|error| error.kind).collect();
    if let Some(told) = telling(&kinds, nodes) {
        failed[..=told].rotate_right(1);
    }
    let mut reasons = Vec::<(String, String)>::new();
    for error in &failed {
        let reason = error.reason();
        match reasons.iter_mut().find(|(_, same)| *same == reason) {
            Some((names, _)) => names.extend([", ", &error.store]),
            None => reasons.push((error.store.clone(), reason)),
        }
    }
    let whys = reasons.iter().map(|(names, why)| format!("{names}: {why}"));
    let why = whys.collect::<Vec<_>>().join("; ");
    let (kind, why) = match failed.first() {
        Some(told) => (told.kind, &*why),
        None => (StoreErrorKind::Unavailable, "the nodes disagree"),
    };
    let needed = majority(nodes);
    let detail = format!("no majority ({needed} of {nodes} nodes are needed): {why}");
    let mut error = StoreError::new(label, kind, detail);
    // The nodes that disagree have answered, so the outcome is known only if all have.
    error.may_have_taken_effect = true;
    error
}

#[cfg(test)]
mod tests {
    use leasehold_core::{ClientId, Fence, HolderIdentity, HolderView, Owner, Reply, Snapshot};

    use super::{is_seen, is_undecided, telling, without_majority};
    use crate::error::StoreError;
    use crate::error::StoreErrorKind::{Misconfigured, Unavailable, Unreachable, Untrusted};

    /// A node holds for the holder by a higher fence, after a repair. The other one of the majority has not answered yet.
    #[test]
    fn a_look_waits_for_the_node_that_knows_the_fence() {
        let sees = |fence: Option<u64>| {
            let holder = fence.map(|fence| {
                let owner = Owner::new(1, ClientId::new(1), "test", 1, "").unwrap();
                let who = HolderIdentity::Owner(owner);
                HolderView::new(who, Some(Fence::new(fence)), None, None)
            });
            Some(Ok(Reply::Seen(Box::new(Snapshot::new(holder, Vec::new())))))
        };
        for (answers, is) in [
            ([sees(Some(100)), None, sees(Some(106))], false),
            ([sees(Some(100)), sees(Some(100)), None], true),
            ([sees(Some(100)), sees(Some(100)), sees(Some(106))], true),
            ([sees(Some(100)), None, None], false),
            ([sees(Some(100)), None, sees(None)], false),
            ([sees(None), None, sees(None)], true),
        ] {
            assert_eq!(is_seen(&answers), is, "{answers:?}");
        }
    }

    #[test]
    fn error_without_majority_names_each_node_and_each_reason_once() {
        let failed = [
            StoreError::new("a", Unreachable, "refused"),
            StoreError::new("b", Unavailable, "LOADING"),
            StoreError::new("c", Unreachable, "refused"),
        ];
        assert_eq!(
            without_majority(failed.iter(), 5, "five").to_string(),
            "five: cannot connect: no majority (3 of 5 nodes are needed): \
             a, c: cannot connect: refused; b: refuses requests for now: LOADING"
        );
        let wrong = [
            StoreError::new("a", Unavailable, "LOADING"),
            StoreError::new("b", Misconfigured, "another mark"),
            StoreError::new("c", Misconfigured, "another mark"),
        ];
        let told = without_majority(wrong.iter(), 3, "three");
        assert_eq!(told.kind, Misconfigured);
        let first = "needed): b, c: is not set up for this: another mark; a: refuses";
        assert!(told.detail.contains(first), "{told}");
        let none = without_majority([].iter(), 3, "three").to_string();
        assert!(none.ends_with("are needed): the nodes disagree"), "{none}");
    }

    #[test]
    fn wrong_setting_is_told_only_if_it_leaves_no_majority() {
        assert_eq!(telling(&[], 3), None);
        assert_eq!(telling(&[Unreachable, Unavailable], 3), Some(0));
        assert_eq!(
            telling(&[Misconfigured, Unreachable], 3),
            Some(1),
            "it may pass"
        );
        assert_eq!(
            telling(&[Unavailable, Misconfigured, Misconfigured], 3),
            Some(1)
        );
        assert_eq!(telling(&[Unreachable, Untrusted, Untrusted], 3), Some(1));
        assert_eq!(
            telling(&[Untrusted, Unreachable], 3),
            Some(1),
            "it may pass"
        );
        assert_eq!(
            telling(&[Misconfigured; 2], 5),
            Some(0),
            "there is no other"
        );
    }

    #[test]
    fn missing_answers_are_waited_for_only_if_they_decide_whether_a_setting_is_wrong() {
        for (kinds, missing, is) in [
            (&[Unavailable, Unavailable, Misconfigured][..], 2, true),
            (&[Unavailable, Unavailable, Misconfigured], 1, false),
            (&[Unavailable, Unavailable, Unavailable], 2, false),
            (&[Misconfigured, Misconfigured, Misconfigured], 2, false),
            (
                &[Unavailable, Unavailable, Misconfigured, Misconfigured],
                1,
                true,
            ),
        ] {
            assert_eq!(is_undecided(kinds, missing, 5), is, "{kinds:?}, {missing}");
        }
    }
}
