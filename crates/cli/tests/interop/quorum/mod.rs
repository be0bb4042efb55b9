//! Redlock libraries and Leasehold on the nodes of one quorum: three servers, each client in its own process.

mod counter;
mod others;
mod scene;
mod stories;
mod votes;

use self::counter::{
    a_counter_goes_on_after_a_killed_holder, a_counter_goes_on_without_the_lead,
    a_counter_loses_nothing,
};
use self::others::{
    a_node_that_forgot_gives_votes_to_it_alone, another_number_of_nodes_does_not_exclude,
};
use self::stories::{
    a_killed_holder_delays_the_other_by_its_ttl, a_release_is_seen_by_the_others_waiter,
    each_excludes_the_other,
};
use self::votes::{
    a_foreign_vote_is_replaced_after_its_release, a_lost_vote_gives_the_other_no_lock,
    a_vote_of_its_killed_waiter_delays_no_other, nobody_releases_the_others_votes,
};
use crate::foreign::Foreign;
use crate::{Story, named};

/// The libraries that can lock a majority of several servers.
const LIBRARIES: &str = "pottery redlock-4 redlock-5 redis-semaphore rslock";

type Tell = fn(&'static Foreign) -> String;

/// The stories of a library.
pub(crate) fn stories(foreign: &'static Foreign) -> Vec<Story> {
    if !LIBRARIES.split(' ').any(|name| name == foreign.name) {
        return Vec::new();
    }
    let all: [(&str, Tell); 12] = named![
        each_excludes_the_other,
        a_release_is_seen_by_the_others_waiter,
        nobody_releases_the_others_votes,
        a_lost_vote_gives_the_other_no_lock,
        a_foreign_vote_is_replaced_after_its_release,
        a_killed_holder_delays_the_other_by_its_ttl,
        a_counter_loses_nothing,
        a_counter_goes_on_without_the_lead,
        a_counter_goes_on_after_a_killed_holder,
        another_number_of_nodes_does_not_exclude,
        a_node_that_forgot_gives_votes_to_it_alone,
        a_vote_of_its_killed_waiter_delays_no_other,
    ];
    let apply = all.into_iter().filter(|(title, _)| {
        *title != "a_vote_of_its_killed_waiter_delays_no_other" || foreign.name == "redlock-5"
    });
    let story = |(title, tell): (&str, Tell)| -> Story {
        let title = format!("{} quorum {title}", foreign.name);
        (title, Box::new(move || tell(foreign)))
    };
    apply.map(story).collect()
}
