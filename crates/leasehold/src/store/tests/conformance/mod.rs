//! One suite for every store: the data that a store keeps, and the notices that it sends. A new store is one row at the end of this file.
//!
//! Core tests the rules, and `against_core` compares the scripts of Redis with them step by step. So there is no behaviour here for a rule
//! that concerns no store.

#[cfg(feature = "entries")]
mod entries;
mod locks;
mod peer;
#[cfg(feature = "entries")]
mod reader;
mod worlds;

use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(30);

/// Every behaviour, once for each store. For a group that begins with `running`, time runs in some stores.
macro_rules! row {
    ($row:ident, $world:ident, start_paused = $paused:tt) => {
        row! { $row, $world, $paused;
            locks start:
                one_holds_and_the_others_learn_who
                a_refusal_says_when_it_was_given
                names_do_not_touch_each_other
                an_expired_lock_is_taken_over
                a_lock_can_be_kept_taken_after_its_release
                a_break_may_name_any_fence_of_the_block
                inspect_shows_everything_and_changes_nothing
                the_index_shows_what_is_held
                waiters_are_served_in_the_order_they_came
                a_place_in_the_queue_is_kept_by_asking_again
                a_waiter_that_fell_silent_is_passed_over
                all_names_draw_from_one_counter
                a_waiter_is_granted_the_block_it_asked_for_last
                nothing_but_the_counter_stays_behind;
            locks running:
                release_grants_to_next_waiter_and_wakes_only_it
                a_wake_says_what_was_granted
                the_first_in_line_tells_the_holder_that_it_waits;
        }
    };
    ($row:ident, $world:ident, $paused:tt; $($group:ident $begin:ident: $($behaviour:ident)*;)*) => {
        mod $row {
            use super::worlds::World;
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
                a_load_from_before_an_invalidation_fills_as_stale
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
