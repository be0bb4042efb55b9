//! Sends a step to all nodes and judges their answers as they come.

use std::sync::{Arc, Mutex, PoisonError};

use crate::store::contract::{Answer, Done};

/// The answers of the nodes so far; `None` where there is none yet.
pub(super) type Answers = [Option<Answer>];

/// Judges the answers. Returns `None` while more are needed; with all answers, it must decide.
pub(super) type Judge = Box<dyn Fn(&Answers) -> Option<Answer> + Send>;

/// The answers to a step that was sent to all nodes.
pub(super) struct Gather(Mutex<Gathering>);

struct Gathering {
    answers: Vec<Option<Answer>>,
    judge: Judge,
    /// Taken when the answer is known.
    done: Option<Done>,
}

impl Gather {
    pub(super) fn new(nodes: usize, judge: Judge, done: Done) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Gathering {
            answers: vec![None; nodes],
            judge,
            done: Some(done),
        })))
    }

    /// Counts the answer of a node, and answers the caller as soon as the answer is known.
    pub(super) fn heard(&self, node: usize, answer: Answer) {
        let decided = {
            let mut gathering = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            gathering.answers[node] = Some(answer);
            let Gathering {
                answers,
                judge,
                done,
            } = &mut *gathering;
            match done {
                Some(_) => judge(answers).and_then(|answer| Some((done.take()?, answer))),
                None => None,
            }
        };
        // Outside the lock: the caller may send the next step at once.
        if let Some((done, answer)) = decided {
            done.answer(answer);
        }
    }
}
