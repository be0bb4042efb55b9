//! Looks at a lock at all nodes, for an operator.

use futures_util::future::join_all;
use leasehold_core::{LockName, Step};

use super::driver::Quorum;
use super::judge::{Question, judge, no_majority};
use super::refusal::answer_of;
use crate::store::contract::Answer;
use crate::store::inspected::{InspectedNodes, NodeView, snapshot};

impl Quorum {
    /// Looks at a lock at all nodes, and waits for each of them until its time limit. The verdict is that of a look at a majority.
    pub(super) async fn look(&self, name: &LockName, label: &str) -> InspectedNodes {
        let lead = self.lock().leads.of(name);
        let looks = self
            .nodes
            .iter()
            .map(|node| node.apply(name, Step::Inspect));
        let mut answers: Vec<Answer> = join_all(looks).await;
        {
            let mut machine = self.lock();
            for (node, answer) in answers.iter_mut().enumerate() {
                machine.leads.heard(node, answer.is_ok());
                let label = self.nodes[node].label();
                *answer = answer_of(label, answer.clone(), machine.info.terms);
            }
        }
        let nodes = self.nodes.iter().zip(&answers).map(|(node, answer)| {
            NodeView::new(node.label(), snapshot(node.label(), answer.clone()))
        });
        let nodes = nodes.collect();
        let answers: Vec<Option<Answer>> = answers.into_iter().map(Some).collect();
        let verdict = judge(Question::Look { lead }, &answers, label);
        // With all answers there is a verdict.
        let verdict = verdict.unwrap_or_else(|| Err(no_majority(&answers, label)));
        InspectedNodes::new(snapshot(label, verdict), nodes)
    }
}
