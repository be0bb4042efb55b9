//! One suite of behaviours for every store. A new store is one row at the end of this file.

#[cfg(feature = "entries")]
mod entries;
mod fences;
mod hold;
mod peer;
mod queue;
#[cfg(feature = "entries")]
mod reader;
mod worlds;

use std::time::Duration;

use self::peer::Peer;
use self::worlds::World;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(30);

async fn two(world: &impl World) -> (Peer, Peer) {
    (Peer::of(world, 1).await, Peer::of(world, 2).await)
}

async fn three(world: &impl World) -> (Peer, Peer, Peer) {
    let (a, b) = two(world).await;
    (a, b, Peer::of(world, 3).await)
}

/// Every behaviour, once for each store. For a group that begins with `running`, time runs in some stores.
macro_rules! row {
    ($row:ident, $world:ident, start_paused = $paused:tt) => {
        row! { $row, $world, $paused;
            hold start:
                one_holds_and_the_others_learn_who
                a_refusal_says_when_it_was_given
                names_do_not_touch_each_other
                only_the_holder_extends
                an_extension_can_shorten
                lease_counts_until_last_millisecond_and_is_not_retaken
                an_expired_lock_is_taken_over
                a_release_by_a_stranger_changes_nothing
                a_lock_can_be_kept_taken_after_its_release
                a_kept_lock_can_be_given_back
                a_kept_lock_is_still_extended_by_its_owner_and_by_no_other
                a_break_needs_the_fence_of_the_holder
                a_break_may_name_any_fence_of_the_block
                inspect_shows_everything_and_changes_nothing
                the_index_shows_what_is_held;
            queue start:
                a_try_never_queues
                waiters_are_served_in_the_order_they_came
                a_place_in_the_queue_is_kept_by_asking_again
                all_in_line_ask_when_the_lease_ends
                leaving_the_queue_lets_others_move_up
                a_release_by_a_waiter_leaves_the_holder_alone
                expired_lock_goes_to_waiter_and_not_to_newcomer
                a_waiter_that_fell_silent_is_passed_over
                waiter_that_finds_the_lock_itself_is_not_woken
                a_lock_is_granted_to_one_only
                a_grant_that_is_not_claimed_goes_to_the_next
                a_grant_is_never_longer_than_the_lease_that_was_asked_for
                waiter_without_subscription_is_granted_all_the_same;
            queue running:
                release_grants_to_next_waiter_and_wakes_only_it
                a_wake_says_what_was_granted
                the_first_in_line_tells_the_holder_that_it_waits;
            fences start:
                fences_rise_over_releases_and_expiry
                fences_rise_while_the_clock_stands_still
                all_names_draw_from_one_counter
                a_block_is_drawn_with_the_grant
                holder_of_block_is_known_by_fence_of_its_grant
                a_waiter_is_granted_the_block_it_asked_for_last
                fences_rise_over_the_loss_of_all_data
                a_hold_keeps_its_fences_when_the_counter_is_lost
                fences_go_on_from_a_counter_that_is_ahead_of_the_clock
                a_counter_near_the_end_counts_as_lost
                nothing_but_the_counter_stays_behind;
        }
    };
    ($row:ident, $world:ident, $paused:tt; $($group:ident $begin:ident: $($behaviour:ident)*;)*) => {
        mod $row {
            use super::*;
            $($(
                #[tokio::test(start_paused = $paused)]
                async fn $behaviour() {
                    $group::$behaviour(&worlds::$world::$begin()).await;
                }
            )*)*
        }
    };
}

row!(memory, InMemory, start_paused = true);
row!(local, Local, start_paused = true);
#[cfg(target_os = "linux")]
row!(redis, OnRedis, start_paused = false);

/// The behaviours of cache entries.
#[cfg(feature = "entries")]
macro_rules! entries_row {
    ($row:ident, $world:ident, start_paused = $paused:tt) => {
        row! { $row, $world, $paused;
            entries start:
                one_loads_and_all_have_it
                concurrent_requests_wait_for_the_load
                listening_waiter_is_woken_when_load_ends
                value_is_fresh_until_soft_expiry_then_stale_for_a_while
                an_invalidated_value_is_stale_and_the_next_one_is_loaded
                failed_load_causes_back_off
                entries_do_not_touch_each_other_nor_the_lock_of_their_name
                many_are_looked_up_at_once;
        }
    };
}

#[cfg(feature = "entries")]
entries_row!(memory_entries, InMemory, start_paused = true);
#[cfg(feature = "entries")]
entries_row!(local_entries, Local, start_paused = true);
#[cfg(all(feature = "entries", target_os = "linux"))]
entries_row!(redis_entries, OnRedis, start_paused = false);
