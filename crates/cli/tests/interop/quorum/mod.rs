//! Redlock libraries and Leasehold on the nodes of one quorum: three servers, each client in its own process.

mod counter;
mod others;
mod scene;
mod stories;
mod votes;

use std::sync::atomic::Ordering;

use crate::args::Args;
use crate::foreign::Foreign;
use crate::{Tally, tell};

/// The libraries that can lock a majority of several servers.
const LIBRARIES: [&str; 5] = [
    "pottery",
    "redlock-4",
    "redlock-5",
    "redis-semaphore",
    "rslock",
];

struct Story {
    title: &'static str,
    /// The libraries that it applies to.
    concerns: fn(&Foreign) -> bool,
    /// Returns its measurements, and panics on failure.
    tell: fn(&'static Foreign) -> String,
}

const fn of_all(title: &'static str, tell: fn(&'static Foreign) -> String) -> Story {
    let concerns = |_: &Foreign| true;
    Story {
        title,
        concerns,
        tell,
    }
}

const STORIES: &[Story] = &[
    of_all("each_excludes_the_other", stories::each_excludes_the_other),
    of_all(
        "a_release_is_seen_by_the_others_waiter",
        stories::a_release_is_seen_by_the_others_waiter,
    ),
    of_all(
        "nobody_releases_the_others_votes",
        votes::nobody_releases_the_others_votes,
    ),
    of_all(
        "a_lost_vote_gives_the_other_no_lock",
        votes::a_lost_vote_gives_the_other_no_lock,
    ),
    of_all(
        "a_foreign_vote_is_replaced_after_its_release",
        votes::a_foreign_vote_is_replaced_after_its_release,
    ),
    of_all(
        "a_killed_holder_delays_the_other_by_its_ttl",
        stories::a_killed_holder_delays_the_other_by_its_ttl,
    ),
    of_all("a_counter_loses_nothing", counter::a_counter_loses_nothing),
    of_all(
        "a_counter_goes_on_without_the_lead",
        counter::a_counter_goes_on_without_the_lead,
    ),
    of_all(
        "a_counter_goes_on_after_a_killed_holder",
        counter::a_counter_goes_on_after_a_killed_holder,
    ),
    of_all(
        "another_number_of_nodes_does_not_exclude",
        others::another_number_of_nodes_does_not_exclude,
    ),
    of_all(
        "a_node_that_forgot_gives_votes_to_it_alone",
        others::a_node_that_forgot_gives_votes_to_it_alone,
    ),
    Story {
        title: "a_vote_of_its_killed_waiter_delays_no_other",
        concerns: |foreign| foreign.name == "redlock-5",
        tell: votes::a_vote_of_its_killed_waiter_delays_no_other,
    },
];

fn title(foreign: &Foreign, story: &Story) -> String {
    format!("{} quorum {}", foreign.name, story.title)
}

/// The stories of a library.
fn stories_of(foreign: &'static Foreign) -> impl Iterator<Item = &'static Story> {
    let applies = |story: &&Story| LIBRARIES.contains(&foreign.name) && (story.concerns)(foreign);
    STORIES.iter().filter(applies)
}

/// The titles of all stories of a library.
pub(crate) fn titles(foreign: &'static Foreign) -> impl Iterator<Item = String> {
    stories_of(foreign).map(|story| title(foreign, story))
}

/// Runs all stories with one library.
pub(crate) fn try_one(foreign: &'static Foreign, args: &Args, tally: &Tally) {
    let (wanted, left_out): (Vec<_>, Vec<_>) =
        stories_of(foreign).partition(|story| args.want(&title(foreign, story)));
    tally.left_out.fetch_add(left_out.len(), Ordering::SeqCst);
    if wanted.is_empty() {
        return;
    }
    if let Some(why) = foreign.missing() {
        return tally.skip(&format!("{} quorum", foreign.name), why, wanted.len());
    }
    for story in wanted {
        tell(&title(foreign, story), tally, || (story.tell)(foreign));
    }
}
