//! A quorum of nodes as a store. It drives the machine: it passes events to it and carries out its effects, and decides nothing
//! about a lock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use leasehold_core::quorum::QuorumTerms;
use leasehold_core::{Fence, HolderView, LockName, Reply, Step};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::attempt::answer_of;
use super::effects::{EventTime, Purpose, QuorumEffect, QuorumEvent, QuorumTimer, relay};
use super::judge::{is_seen, is_undecided, majority, seen, without_majority};
use super::machine::QuorumMachine;
use crate::clock::{Clock, Moment};
use crate::error::{StoreError, StoreErrorKind};
use crate::runtime::Tasks;
use crate::store::contract::{
    Answer, Done, IndexRequest, InspectedNodes, Listener, NodeView, Notice, Store, snapshot,
};

/// A lock on the majority of several nodes.
pub(crate) struct QuorumStore {
    quorum: Arc<Quorum>,
    terms: QuorumTerms,
    label: String,
}

impl QuorumStore {
    /// Opens a quorum of these nodes. `open` opens each of them, with the listener for its notices.
    pub(crate) fn open<N>(
        terms: QuorumTerms,
        label: String,
        clock: Clock,
        tasks: &Tasks,
        listener: &Listener,
        nodes: Vec<N>,
        open: impl Fn(N, Listener) -> Arc<dyn Store>,
    ) -> Self {
        let tasks = tasks.clone();
        let quorum = Arc::new_cyclic(|quorum: &Weak<Quorum>| {
            let of_node = |(at, node)| open(node, relayed(quorum.clone(), at, listener.clone()));
            let nodes: Vec<_> = nodes.into_iter().enumerate().map(of_node).collect();
            let labels = nodes.iter().map(|node| node.label().to_owned()).collect();
            let machine = QuorumMachine::new(terms, label.clone(), labels);
            Quorum {
                nodes,
                clock,
                tasks,
                listener: listener.clone(),
                machine: Mutex::new(machine),
                under_way: Mutex::new(UnderWay {
                    count: 0,
                    token: None,
                    is_over: false,
                    linger: LINGER,
                }),
            }
        });
        Self {
            quorum,
            terms,
            label,
        }
    }

    #[cfg(test)]
    pub(super) fn quorum(&self) -> &Quorum {
        &self.quorum
    }
}

impl Store for QuorumStore {
    fn send(&self, name: &LockName, step: Step, done: Done) {
        let (quorum, name) = (self.quorum.clone(), name.clone());
        match step {
            Step::Inspect => self.quorum.tasks.spawn_aside(async move {
                done.answer(quorum.look(&name, None).await.0);
            }),
            Step::Break { fence } => self.quorum.tasks.spawn_aside(async move {
                let (verdict, answers) = quorum.look(&name, None).await;
                let fences = held_by(fence, &verdict, &answers);
                quorum.handle(QuorumEvent::Breaks(name, fences, done));
            }),
            step => quorum.handle(QuorumEvent::Asked(name, step, done)),
        }
    }

    fn inspect_nodes<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, InspectedNodes> {
        async move {
            let (verdict, answers) = self.quorum.look(name, Some(STRAGGLE)).await;
            let nodes = self.quorum.nodes.iter().zip(answers);
            let views =
                nodes.map(|(node, seen)| NodeView::new(node.label(), snapshot(node.label(), seen)));
            InspectedNodes::new(snapshot(&self.label, verdict), views.collect())
        }
        .boxed()
    }

    fn closing(&self) {
        self.quorum.handle(QuorumEvent::Closing);
        let quorum = self.quorum.clone();
        self.quorum.tasks.spawn_aside(async move {
            let linger = quorum.under_way().linger;
            quorum.clock.sleep(linger).await;
            quorum.under_way().end();
        });
    }

    fn tells_wanted(&self) -> bool {
        let nodes = &self.quorum.nodes;
        nodes.iter().filter(|node| node.tells_wanted()).count() >= majority(nodes.len())
    }

    fn raises_fences(&self) -> bool {
        true
    }

    fn longest_ttl(&self) -> Duration {
        self.terms.longest_ttl.get()
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn nodes(&self) -> Vec<String> {
        let nodes = self.quorum.nodes.iter();
        nodes.map(|node| node.label().to_owned()).collect()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            let nodes = &self.quorum.nodes;
            let needed = majority(nodes.len());
            let begun = self.quorum.clock.now();
            let mut waiting: FuturesUnordered<_> = nodes.iter().map(|node| node.ready()).collect();
            let (mut ready, mut failed) = (0, Vec::new());
            while let Some(outcome) = waiting.next().await {
                match outcome {
                    Ok(()) => ready += 1,
                    Err(error) => failed.push(error),
                }
                if ready >= needed {
                    let took = self.quorum.clock.now().since(begun);
                    self.quorum.under_way().linger = took.clamp(LINGER, STRAGGLE);
                    return Ok(());
                }
                let kinds: Vec<_> = failed.iter().map(|error: &StoreError| error.kind).collect();
                let missing = nodes.len() - ready - failed.len();
                let may_be_told = !is_undecided(&kinds, missing, nodes.len());
                if failed.len() > nodes.len() - needed && may_be_told {
                    break;
                }
            }
            let mut error = without_majority(failed.iter(), nodes.len(), &self.label);
            error.may_have_taken_effect = false;
            Err(error)
        }
        .boxed()
    }

    fn index(&self, request: IndexRequest) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        async move {
            let quorum = &self.quorum;
            let asked = quorum.nodes.iter().map(|node| node.index(request.clone()));
            let straggle = match request {
                IndexRequest::Read => STRAGGLE,
                // The index holds hints only, so a majority is enough.
                IndexRequest::Remember(_) | IndexRequest::Forget(_) => Duration::ZERO,
            };
            let (mut names, mut failed) = (Vec::new(), Vec::new());
            for outcome in quorum.most(asked, |_| Some(straggle)).await {
                match outcome {
                    Ok(some) => names.extend(some),
                    Err(error) => failed.push(error),
                }
            }
            if failed.len() == self.quorum.nodes.len() {
                let nodes = self.quorum.nodes.len();
                return Err(without_majority(failed.iter(), nodes, &self.label));
            }
            names.sort_unstable();
            names.dedup();
            Ok(names)
        }
        .boxed()
    }
}

/// The nodes, and the machine of this client.
pub(super) struct Quorum {
    pub(super) nodes: Vec<Arc<dyn Store>>,
    clock: Clock,
    tasks: Tasks,
    /// Hears of failed requests.
    listener: Listener,
    machine: Mutex<QuorumMachine<Done>>,
    under_way: Mutex<UnderWay>,
}

/// For how long a client that is closed waits for the nodes that answer later than a majority: for as long as it took a majority to
/// connect, but at least for this time, and at most for [`STRAGGLE`].
const LINGER: Duration = Duration::from_millis(30);

/// How long a look at each node waits for the others once a majority has answered.
const STRAGGLE: Duration = Duration::from_millis(250);

/// The steps under way. A client that is closed waits for them.
struct UnderWay {
    count: usize,
    token: Option<TaskTrackerToken>,
    is_over: bool,
    /// How long the client waits for them.
    linger: Duration,
}

impl UnderWay {
    fn begin(&mut self, tasks: &Tasks) {
        self.count += 1;
        if !self.is_over && self.token.is_none() {
            self.token = Some(tasks.token());
        }
    }

    /// Returns what the client waits for until it is dropped.
    fn one_less(&mut self) -> Option<TaskTrackerToken> {
        self.count = self.count.saturating_sub(1);
        self.token.take_if(|_| self.count == 0)
    }

    /// The client waits no longer.
    fn end(&mut self) {
        (self.is_over, self.token) = (true, None);
    }
}

impl Quorum {
    /// Handles an event.
    fn handle(self: &Arc<Self>, event: QuorumEvent<Done>) {
        let at = EventTime {
            now: self.clock.now(),
            wall_us: self.clock.store_now().wall_us,
        };
        let mut effects = Vec::new();
        self.lock().handle(at, event, &mut effects);
        // The machine is unlocked: a store and a caller may call this method again.
        for effect in effects {
            match effect {
                QuorumEffect::Send {
                    node,
                    name,
                    step,
                    purpose,
                } => self.send(node, &name, step, purpose),
                QuorumEffect::Answer(caller, answer) => caller.answer(answer),
                QuorumEffect::Wake(after, timer) => self.wake(after, timer),
            }
        }
    }

    /// Sends a step to a node. A client that is closed waits a moment for the answers of all nodes, not only of a majority: a process
    /// that ends sooner may leave votes behind. It does not wait for repeated steps, which may take long.
    fn send(self: &Arc<Self>, node: usize, name: &LockName, step: Step, purpose: Purpose) {
        let is_first = !purpose.is_repeated();
        if is_first {
            self.under_way().begin(&self.tasks);
        }
        let quorum = self.clone();
        let answered = move |answer: Answer| {
            quorum.note(node, &answer);
            quorum.handle(QuorumEvent::Answered {
                node,
                purpose,
                answer,
            });
            let ended = is_first.then(|| quorum.under_way().one_less());
            // What the answer has led to is sent.
            drop(quorum);
            drop(ended);
        };
        self.nodes[node].send(name, step, Done::new(answered));
    }

    /// Reports the answer of a node if it is a failure.
    fn note<T>(&self, node: usize, answer: &Result<T, StoreError>) {
        if let Err(error) = answer {
            let kind = error.kind;
            (self.listener)(Notice::NodeFailed { node, kind });
        }
    }

    fn wake(self: &Arc<Self>, after: Duration, timer: QuorumTimer) {
        let quorum = self.clone();
        self.tasks.spawn_aside(async move {
            quorum.clock.sleep(after).await;
            quorum.handle(QuorumEvent::Passed(timer));
        });
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, QuorumMachine<Done>> {
        // The machine only counts and collects effects; a panic is a bug, and the votes expire.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answers of the nodes to a request. Once a majority has answered, the others have as long left as these answers demand; `None`
    /// if they are not enough.
    async fn most<T>(
        &self,
        asked: impl Iterator<Item = impl Future<Output = Result<T, StoreError>>>,
        straggle: impl Fn(&[Option<Result<T, StoreError>>]) -> Option<Duration>,
    ) -> Vec<Result<T, StoreError>> {
        let asked = asked
            .enumerate()
            .map(|(at, answer)| async move { (at, answer.await) });
        let mut asked: FuturesUnordered<_> = asked.collect();
        let mut answers: Vec<_> = self.nodes.iter().map(|_| None).collect();
        let mut most_at: Option<Moment> = None;
        loop {
            let until = most_at.and_then(|at| Some(at.after(straggle(&answers)?)));
            let next = match until {
                None => asked.next().await,
                Some(until) => tokio::select! {
                    biased;
                    next = asked.next() => next,
                    () = self.clock.sleep_until(until) => None,
                },
            };
            let Some((at, answer)) = next else {
                break;
            };
            self.note(at, &answer);
            answers[at] = Some(answer);
            let answered = answers.iter().flatten().filter(|answer| answer.is_ok());
            if most_at.is_none() && answered.count() >= majority(self.nodes.len()) {
                most_at = Some(self.clock.now());
            }
        }
        let late = |node: &Arc<dyn Store>| {
            let why = "it answers later than a majority";
            Err(StoreError::new(node.label(), StoreErrorKind::TimedOut, why))
        };
        let answers = answers.into_iter().zip(&self.nodes);
        answers
            .map(|(answer, node)| answer.unwrap_or_else(|| late(node)))
            .collect()
    }

    /// Looks at a lock at all nodes. Once a majority has answered and it is known who holds, the others have as long as this left; without
    /// it, only the lead is awaited, for its patience. Returns the verdict of those that answered, and the answer of each.
    async fn look(&self, name: &LockName, straggle: Option<Duration>) -> (Answer, Vec<Answer>) {
        let (lead, patience) = {
            let leads = &self.lock().leads;
            let lead = leads.of(name);
            (lead, leads.patience(lead))
        };
        let asked = self
            .nodes
            .iter()
            .map(|node| node.apply(name, Step::Inspect));
        let left = |answers: &[Option<Answer>]| {
            let for_lead = answers[lead].as_ref().map_or(patience, |_| Duration::ZERO);
            is_seen(answers).then(|| straggle.unwrap_or(for_lead))
        };
        let mut answers = self.most(asked, left).await;
        let mut machine = self.lock();
        let QuorumMachine { leads, info, .. } = &mut *machine;
        for (node, answer) in answers.iter_mut().enumerate() {
            // Who is not waited for at all is not silent.
            if answer.is_ok() || node == lead || straggle.is_some() {
                leads.heard(node, answer.is_ok());
            }
            *answer = answer_of(&info.nodes[node], answer.clone(), info.terms);
        }
        (seen(&answers, lead, &info.label), answers)
    }
}

/// The fence by which each node holds for the holder of the verdict that some node knows by `fence`: a repair may have raised it elsewhere.
fn held_by(fence: Fence, verdict: &Answer, answers: &[Answer]) -> Vec<Fence> {
    let holders = |answer: &Answer| -> Vec<HolderView> {
        match answer {
            Ok(Reply::Seen(seen)) => seen.holders().cloned().collect(),
            _ => Vec::new(),
        }
    };
    let all = answers.iter().chain([verdict]).flat_map(holders);
    let known: Vec<_> = all.filter(|view| view.fence == Some(fence)).collect();
    let is_named = |meant: &HolderView| known.iter().any(|view| view.who == meant.who);
    let meant = holders(verdict).into_iter().find(is_named);
    let fence_at = |answer| {
        let is_meant = |held: &HolderView| meant.as_ref().is_some_and(|it| it.who == held.who);
        let held = holders(answer).into_iter().find(is_meant);
        held.and_then(|held| held.fence).unwrap_or(fence)
    };
    answers.iter().map(fence_at).collect()
}

/// Passes the notices of this node on.
fn relayed(quorum: Weak<Quorum>, node: usize, listener: Listener) -> Listener {
    Arc::new(move |notice| {
        let (event, notice) = relay(node, notice);
        if let (Some(event), Some(quorum)) = (event, quorum.upgrade()) {
            quorum.handle(event);
        }
        if let Some(notice) = notice {
            listener(notice);
        }
    })
}
