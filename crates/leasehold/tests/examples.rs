//! Runs every example as its first lines say, without a server and on a real one, and checks its output.

use testkit::examples::outputs;

#[test]
fn flash_sale_is_exact_with_the_lock_and_oversold_without() {
    for text in outputs("flash_sale") {
        assert!(
            text.contains("with the lock:    10 of 10 items sold"),
            "{text}"
        );
        let oversold: u32 = text
            .split_whitespace()
            .nth(3)
            .and_then(|word| word.parse().ok())
            .expect("a count");
        assert!(oversold > 10, "{text}");
    }
}

#[test]
fn fenced_writes_keep_the_late_write_out() {
    for text in outputs("fenced_writes") {
        assert!(
            text.contains("writes 110: refused, its fence is stale"),
            "{text}"
        );
        assert!(text.contains("B writes 101: accepted"), "{text}");
    }
}

#[test]
fn select_on_loss_stops_the_work() {
    for text in outputs("select_on_loss") {
        let told = [
            "stopped after ",
            "the store says that no one holds it",
            "the next leader has fence",
        ];
        assert!(told.iter().all(|part| text.contains(part)), "{text}");
    }
}

#[test]
fn nightly_work_is_done_once_for_each_date() {
    for text in outputs("nightly") {
        let told = [
            "a: the printer is out of paper",
            "b: prints the report under fence ",
            "b: 7 pages",
            "c: b has done it, in run 2",
        ];
        for part in told {
            assert_eq!(text.matches(part).count(), 2, "{part}: {text}");
        }
    }
}

#[test]
fn a_configuration_is_never_read_in_halves() {
    for text in outputs("config") {
        assert!(text.contains("version 5, under fence "), "{text}");
        assert!(text.contains("0 torn reads of 160"), "{text}");
    }
}

#[test]
fn a_licence_has_four_seats() {
    for text in outputs("seats") {
        assert!(text.contains("at most 4 seats were used at once"), "{text}");
        for seat in 1..=4 {
            assert!(text.contains(&format!("has seat {seat}\n")), "{text}");
        }
        assert_eq!(text.matches(" has seat ").count(), 10, "{text}");
    }
}

#[test]
fn transfers_in_both_directions_end_and_lose_nothing() {
    for text in outputs("transfer") {
        for name in ["ann", "bob", "cid"] {
            assert!(text.contains(&format!("{name} has 100\n")), "{text}");
        }
    }
}

#[test]
fn one_host_leads_at_a_time() {
    for text in outputs("scheduler") {
        assert_eq!(text.matches(" plans job 2 in term ").count(), 3, "{text}");
        assert!(text.contains("3 terms"), "{text}");
        assert!(text.contains("leader now: none"), "{text}");
    }
}

#[test]
fn by_key_serves_each_account_as_often_as_it_has_money() {
    for text in outputs("by_key") {
        assert_eq!(text, "20 requests were served, 10 refused\nleft: 0 and 0\n");
    }
}
