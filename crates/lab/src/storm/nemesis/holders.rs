//! The faults of those who hold a lock in a certain mode: a lock that is broken, as by an operator, and a worker that is killed in it.

use std::time::Duration;

use leasehold::{Client, HolderIdentity, Mode};

use super::Nemesis;
use crate::host_time;
use crate::storm::schedule::{PlannedFault, take};
use crate::storm::stage::Grant;
use crate::storm::worker::WorkerConfig;

/// How long a worker is looked for that holds a lock in this mode, before any other is good enough.
const HOLDERS: Duration = Duration::from_millis(2_500);

/// Whether this fault is for a holder in this mode: those of its kind take turns.
fn is_for(fault: &PlannedFault, mode: Mode) -> bool {
    let turn = match mode {
        Mode::Exclusive => 0,
        Mode::Shared => 1,
        Mode::Slot(_) => 2,
    };
    fault.turn % 3 == turn
}

impl Nemesis<'_> {
    /// Breaks a lock by the fence that an operator sees: its holder, or all readers, learn of it later. It is recorded also if there is no
    /// answer; then another one is broken besides.
    pub(super) fn break_lock(&mut self, fault: &PlannedFault) -> Result<(), String> {
        let until = host_time::up() + HOLDERS;
        self.until("a holder whose lock can be broken", |nemesis| {
            let any = host_time::up() > until;
            let broken = nemesis.with_client(async |client, locks| {
                let mut grants = grants(client, locks).await;
                grants.retain(|grant| any || is_for(fault, grant.mode));
                while let Some(grant) = take(&mut grants, fault.whom) {
                    let from = host_time::up_ns();
                    // It may have left meanwhile.
                    let broken = client.break_lock(&grant.lock, grant.fence).await;
                    if !matches!(broken, Ok(false)) {
                        return Some((grant, from, host_time::up_ns(), broken.is_ok()));
                    }
                }
                None
            })?;
            let Some(Some((grant, from, until, is_certain))) = broken else {
                return Ok(false);
            };
            nemesis.stage.lock_broken(&grant, (from, until))?;
            Ok(is_certain)
        })
    }

    /// Kills a worker that holds a lock: as a mutex or a writer, as a reader, or in a slot. It is stopped before, so it cannot leave. Where
    /// all locks are mutexes, any worker is killed. So on a quorum, which may not say now who holds a lock.
    pub(super) fn kill_holder(&mut self, fault: &PlannedFault) -> Result<(), String> {
        let until = host_time::up() + HOLDERS;
        self.until("a worker to be killed", |nemesis| {
            let can_tell = nemesis.stage.mixes_kinds() && !nemesis.servers.is_quorum();
            if !can_tell || host_time::up() > until {
                let proc = nemesis.stage.stop_worker(fault.whom, Duration::ZERO)?;
                nemesis.stage.kill_worker(proc, None)?;
                return Ok(true);
            }
            let mut holders = nemesis.holders_for(fault)?;
            let Some((proc, _)) = take(&mut holders, fault.whom) else {
                return Ok(false);
            };
            // It may have left, or been stopped, meanwhile.
            if !nemesis.stage.stop_worker_of(proc)? {
                return Ok(false);
            }
            let holders = nemesis.holders_for(fault)?;
            let still = holders.iter().find(|(holder, _)| *holder == proc);
            if let Some((_, mode)) = still {
                nemesis.stage.kill_worker(proc, Some(*mode))?;
            }
            Ok(still.is_some())
        })
    }

    /// The numbers of the workers that hold a lock in the mode that this fault is for.
    fn holders_for(&self, fault: &PlannedFault) -> Result<Vec<(u64, Mode)>, String> {
        let grants = self.with_client(grants)?.unwrap_or_default();
        let grants = grants.iter().filter(|it| is_for(fault, it.mode));
        let holders = grants.filter_map(|grant| {
            let proc = WorkerConfig::proc_of(&grant.owner.note())?;
            Some((proc, grant.mode))
        });
        Ok(holders.collect())
    }

    /// Does this with a client of the workers' store, and the names of their locks. `None` if there is no connection now.
    fn with_client<T>(
        &self,
        work: impl AsyncFnOnce(&Client, &[String]) -> T,
    ) -> Result<Option<T>, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let (url, locks) = self.stage.store();
        Ok(runtime.block_on(async {
            let client = Client::connect(url).await.ok()?;
            let done = work(&client, &locks).await;
            client.close().await;
            Some(done)
        }))
    }
}

/// All grants of these locks, but for those of a lock that has no answer.
async fn grants(client: &Client, locks: &[String]) -> Vec<Grant> {
    let mut grants = Vec::new();
    for lock in locks {
        let Ok(seen) = client.inspect(lock).await else {
            continue;
        };
        grants.extend(seen.holders().filter_map(|holder| match &holder.who {
            HolderIdentity::Owner(owner) => Some(Grant {
                lock: lock.clone(),
                owner: owner.clone(),
                fence: holder.fence?,
                mode: holder.mode,
            }),
            HolderIdentity::Foreign { .. } => None,
        }));
    }
    grants
}
