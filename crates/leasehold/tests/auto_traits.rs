//! Checks that programs can send these types and futures to other threads. A type that loses this breaks programs that compile today.

use std::time::Duration;

use leasehold::timestamp::Unit;
use leasehold::{
    All, Client, ClientBuilder, Clock, Credentials, Detached, Error, Fence, Gate, HolderView,
    Lease, LeaseEnd, LeaseStatus, Leases, LossWatch, Lost, Memory, Moment, Mutex, Snapshot,
    StoreError, Timeout, TimestampHold, TimestampLock, WaitStatus, blocking,
};

fn crosses<T: Send + Sync + 'static>() {}

fn moves<T: Send + 'static>(future: T) {
    drop(future);
}

fn sends<T: Send>(future: T) {
    drop(future);
}

#[test]
fn types_cross_threads() {
    crosses::<Client>();
    crosses::<ClientBuilder>();
    crosses::<Clock>();
    crosses::<Moment>();
    crosses::<Memory>();
    crosses::<Mutex>();
    crosses::<Lease>();
    crosses::<(All, Leases)>();
    crosses::<LeaseEnd>();
    crosses::<LossWatch>();
    crosses::<Detached>();
    crosses::<LeaseStatus>();
    crosses::<WaitStatus>();
    crosses::<Fence>();
    crosses::<Gate>();
    crosses::<HolderView>();
    crosses::<Snapshot>();
    crosses::<Credentials>();
    crosses::<(Error, StoreError, Lost, Timeout)>();
    crosses::<(TimestampLock, TimestampHold, Unit)>();
    crosses::<(blocking::Client, blocking::Mutex, blocking::Lease)>();
    crosses::<(blocking::LossWatch, blocking::Detached)>();
    crosses::<(blocking::TimestampLock, blocking::TimestampHold)>();
}

#[tokio::test]
async fn futures_cross_threads() -> Result<(), Error> {
    let client = Client::embedded()?;
    let mutex = client.mutex("m");
    moves(Client::connect("memory:"));
    moves(Client::connect_quorum(["redis://127.0.0.1:1/"]));
    moves(mutex.clone().acquire_owned());
    moves(mutex.clone().try_acquire_owned());
    moves(mutex.clone().acquire_within_owned(Duration::from_secs(1)));
    sends(mutex.acquire());
    sends(mutex.try_acquire());
    let read = client.rw_lock("r").read();
    sends(client.all([&mutex, &read]).acquire());
    sends(mutex.acquire_within(Duration::from_secs(1)));
    sends(mutex.run(async |lease| Ok::<_, leasehold::Error>(lease.fence())));
    sends(client.inspect("m"));
    sends(client.close());
    let lease = mutex.acquire().await?;
    sends(lease.lost());
    sends(lease.extend(Duration::from_secs(30)));
    moves(lease.release());
    Ok(())
}
