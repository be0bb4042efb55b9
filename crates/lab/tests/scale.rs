//! Expected results of the simulation on small populations, and its reproducibility.

use std::time::Duration;

use leasehold_lab::scale::{Crash, Figures, ScaleSettings, WaitMethod, json, picture, run, table};

fn settings(clients: u32, hand_overs: u64) -> ScaleSettings {
    ScaleSettings {
        clients,
        hand_overs: Some(hand_overs),
        ..ScaleSettings::default()
    }
}

fn figures(way: WaitMethod, settings: &ScaleSettings) -> Figures {
    run(way, settings).expect("valid settings")
}

#[test]
fn one_seed_gives_one_result() {
    for way in WaitMethod::ALL {
        let first = figures(way, &settings(50, 500));
        assert_eq!(first, figures(way, &settings(50, 500)));
        let other = ScaleSettings {
            seed: 2,
            ..settings(50, 500)
        };
        assert_ne!(first, figures(way, &other), "{}", way.name());
    }
}

#[test]
fn ours_hands_over_in_one_latency_with_two_commands_in_turn() {
    let found = figures(WaitMethod::Leasehold, &settings(100, 2_000));
    assert!(found.commands <= 2.3, "{found:?}");
    // Script, publish, one way: 10 + 5 + 50 microseconds.
    assert!((0.065..0.07).contains(&found.gap_p99_ms), "{found:?}");
    assert!(found.lock > 0.97 && found.lapsed == 0, "{found:?}");
    let fairness = found.fairness.unwrap();
    assert!(fairness.max_over_mean < 1.1, "{fairness:?}");
    assert!(found.jumped < 0.001, "{}", found.jumped);
}

#[test]
fn few_pollers_leave_the_lock_free_for_long() {
    let found = figures(WaitMethod::Poller, &settings(10, 2_000));
    assert!((5.0..40.0).contains(&found.gap_p99_ms), "{found:?}");
    assert!(found.lock < 0.8, "{found:?}");
}

#[test]
fn many_pollers_take_all_of_the_server() {
    let found = figures(WaitMethod::Poller, &settings(50_000, 20));
    assert!(found.server > 0.99 && found.lock < 0.2, "{found:?}");
    assert!(found.gap_p50_ms > 20.0, "{found:?}");
}

#[test]
fn a_broadcast_costs_a_command_of_each_client() {
    let commands =
        |clients, turns| figures(WaitMethod::Broadcast, &settings(clients, turns)).commands;
    for (clients, turns) in [(10, 500), (100, 300), (1_000, 100)] {
        let each = commands(clients, turns) / f64::from(clients);
        assert!((0.7..1.1).contains(&each), "{clients} clients: {each}");
    }
}

#[test]
fn a_poller_that_wants_it_again_at_once_takes_it_again() {
    let eager = |way| {
        let settings = ScaleSettings {
            think: Duration::ZERO,
            ..settings(10, 2_000)
        };
        figures(way, &settings).again
    };
    assert!(eager(WaitMethod::Poller) > 0.9);
    assert!(eager(WaitMethod::Leasehold) < 0.01);
}

#[test]
fn dead_waiters_cost_nothing() {
    let dead = ScaleSettings {
        crash: Some(Crash::Dead),
        ..settings(300, 1_000)
    };
    let found = figures(WaitMethod::Leasehold, &dead);
    assert!(
        found.gap_max_ms < 0.2 && found.hand_overs == 1_000,
        "{found:?}"
    );
}

/// The claim window is 3 s. The first waiter to poll was told its interval when it joined behind all others, and adds up to 10 %.
#[test]
fn stuck_waiter_costs_claim_window_and_10_ms_per_waiter() {
    for clients in [10, 100] {
        for seed in 1..=5 {
            let stuck = ScaleSettings {
                crash: Some(Crash::Stuck),
                seed,
                ..settings(clients, 1_000)
            };
            let found = figures(WaitMethod::Leasehold, &stuck);
            assert_eq!((found.lapsed, found.hand_overs), (1, 1_000), "{found:?}");
            let most = (3_001.0 + 10.0 * f64::from(clients)) * 1.1;
            assert!((2_900.0..most).contains(&found.gap_max_ms), "{found:?}");
        }
    }
}

#[test]
fn long_sections_are_renewed() {
    let long = ScaleSettings {
        section: Duration::from_secs(25),
        ..settings(5, 20)
    };
    let found = figures(WaitMethod::Leasehold, &long);
    assert!(found.lock > 0.99 && found.gap_max_ms < 1.0, "{found:?}");
    assert!(found.commands > 4.0, "it renews and polls: {found:?}");
}

#[test]
fn polls_from_deep_in_the_line_need_not_be_steps_of_core() {
    let all = settings(4_000, 600);
    let some = ScaleSettings {
        deep_polls: 50,
        ..all.clone()
    };
    let (all, some) = (
        figures(WaitMethod::Leasehold, &all),
        figures(WaitMethod::Leasehold, &some),
    );
    assert_eq!(all, some);
    assert!(all.commands > 2.0, "there were polls: {all:?}");
}

#[test]
fn the_smallest_line_is_one_client() {
    for way in WaitMethod::ALL {
        assert_eq!(figures(way, &settings(1, 50)).hand_overs, 50);
    }
}

#[test]
fn findings_are_shown() {
    let found = WaitMethod::ALL.map(|way| figures(way, &settings(10, 200)));
    let text = table(&found);
    assert_eq!(text.lines().count(), 2 + WaitMethod::ALL.len());
    let svg = picture(&found);
    for way in WaitMethod::ALL {
        assert!(text.contains(way.name()) && json(&found).contains(way.name()));
    }
    assert_eq!(svg.matches("<polyline").count(), 9);
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    let document: serde_json::Value = serde_json::from_str(&json(&found)).unwrap();
    assert_eq!(document["schema"], "leasehold.lab-scale/1");
    assert_eq!(document["figures"][0]["clients"], found[0].clients);
}
