//! Elections: one leads, and the others follow.

use std::ops::ControlFlow;
use std::time::Duration;

use leasehold::{Client, Election, Error, HolderIdentity};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::{LONG, Place, TTL, eventually, look, on_every_store};

const OFTEN: Duration = Duration::from_millis(10);

fn election(client: &Client, note: &str) -> Election {
    client.election("svc").ttl(TTL).note(note)
}

async fn a_leader_that_steps_down_is_followed_at_once(place: Place) {
    let (a, b) = place.two().await;
    let first = election(&a, "a").campaign().await.expect("nobody leads");
    let next = election(&b, "b");
    let mut waits = JoinSet::new();
    waits.spawn(async move { next.campaign().await });
    let queued = async || !look(&b, "svc").await.queue.is_empty();
    eventually("it waits", queued).await;
    let number = first.fence();
    first.release().await.expect("it leads");
    let term = timeout(LONG, waits.join_next()).await.expect("at once");
    let term = term
        .expect("it waits")
        .expect("no panic")
        .expect("it leads");
    assert!(term.fence() > number && term.owner().note() == "b");
}

async fn all_can_see_who_leads(place: Place) {
    let (a, b) = place.two().await;
    let seen = election(&b, "b");
    assert_eq!(seen.leader().await, Ok(None));
    let mut watch = seen.watch_leader(OFTEN);
    assert_eq!(watch.changed().await, Ok(None));
    let term = election(&a, "10.0.0.7:80")
        .campaign()
        .await
        .expect("nobody leads");
    let told = timeout(LONG, watch.changed()).await.expect("it is told");
    let leader = told.expect("it answers").expect("someone leads");
    let HolderIdentity::Owner(by) = &leader.who else {
        panic!("{leader:?}");
    };
    assert_eq!((by, &*by.note()), (term.owner(), "10.0.0.7:80"));
    let again = timeout(OFTEN * 5, watch.changed()).await;
    assert!(again.is_err(), "{again:?}");
    term.release().await.expect("it leads");
    let told = timeout(LONG, watch.changed()).await.expect("it is told");
    assert_eq!(told, Ok(None));
}

on_every_store! {
    a_leader_that_steps_down_is_followed_at_once
    all_can_see_who_leads
}

#[tokio::test]
async fn a_bad_setting_ends_the_campaign() {
    let client = Place::memory().client().await;
    let never = async |_| ControlFlow::<()>::Continue(());
    let refused = client.election("").lead(never).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}
