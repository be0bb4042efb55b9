//! Steps that go to all nodes, and their answers so far.

use std::collections::HashMap;

use leasehold_core::{Reply, Ttl};

use super::judge::{Question, judge};
use crate::store::contract::Answer;

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
    /// The TTL of a renewal.
    ttl: Option<Ttl>,
}

/// The answer to a step that went to all nodes.
pub(super) struct Judged<C> {
    pub(super) caller: C,
    pub(super) answer: Answer,
    /// The TTL of a renewal that is confirmed.
    pub(super) confirmed: Option<Ttl>,
}

impl<C> Gatherings<C> {
    pub(super) fn new() -> Self {
        Self {
            open: HashMap::new(),
            next: 0,
        }
    }

    /// Begins to gather the answers of so many nodes. `ttl` is that of a renewal.
    pub(super) fn begin(
        &mut self,
        nodes: usize,
        question: Question,
        ttl: Option<Ttl>,
        caller: C,
    ) -> u64 {
        self.next += 1;
        let gathering = Gathering {
            answers: vec![None; nodes],
            question,
            caller: Some(caller),
            ttl,
        };
        self.open.insert(self.next, gathering);
        self.next
    }

    /// Counts the answer of a node. Returns the answer to the caller as soon as it is known.
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
        let judged = answer.and_then(|answer| {
            let is_held = matches!(answer, Ok(Reply::Held(_)));
            Some(Judged {
                caller: gathering.caller.take()?,
                answer,
                confirmed: gathering.ttl.filter(|_| is_held),
            })
        });
        if gathering.answers.iter().all(Option::is_some) {
            self.open.remove(&number);
        }
        judged
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}
