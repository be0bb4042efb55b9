//! The text of `inspect` for one lock, with all that an operator needs to decide about `break`. Pure.

use std::fmt::Write as _;

use leasehold::{HolderIdentity, Snapshot, WaiterView};

use crate::messages::{place, quoted, span, who};
use crate::view::{foreign, is_alive, is_cache_entry};

/// The text. `pasted` is the lock with its store options, for a command.
pub(crate) fn of(name: &str, pasted: &str, snapshot: &Snapshot) -> String {
    let state = if snapshot.holder.is_some() {
        "held"
    } else {
        "free"
    };
    let mut text = format!("{} is {state}\n", quoted(name));
    let mut row = |what: &str, said: String| {
        // Writing to a string cannot fail.
        let _infallible = writeln!(text, "    {what:<7} {said}");
    };
    if let Some(holder) = &snapshot.holder {
        match &holder.who {
            HolderIdentity::Owner(_) => row("holder", who(holder)),
            HolderIdentity::Foreign { kind, value } if is_cache_entry(kind, value) => {
                row("holder", who(holder));
            }
            HolderIdentity::Foreign { kind, value } => row(
                "holder",
                format!("a foreign lock: {}", foreign(kind, value)),
            ),
        }
        if let Some(fence) = holder.fence {
            row("fence", fence.to_string());
        }
        if let Some(held) = holder.held_for {
            row("held", span(held));
        }
        row(
            "lease",
            match holder.expires_in {
                Some(left) => format!("{} left, unless renewed", span(left)),
                None => "NEVER ENDS: the program that set this key must delete it".into(),
            },
        );
    }
    if snapshot.holder.is_some() || !snapshot.queue.is_empty() {
        row("queue", format!("{} waiting", snapshot.queue.len()));
    }
    for (ahead, waiter) in (0..).zip(&snapshot.queue) {
        row("", waiting(ahead, waiter));
    }
    let fence = snapshot.holder.as_ref().and_then(|holder| holder.fence);
    if let Some(fence) = fence {
        row(
            "break",
            format!("leasehold break --if-fence {fence} {pasted}"),
        );
    }
    text
}

fn waiting(ahead: u32, waiter: &WaiterView) -> String {
    let life = if is_alive(waiter) {
        format!("alive, or passed over in {}", span(waiter.seen_for))
    } else {
        "SILENT: will be passed over".into()
    };
    format!("{}: {}, {life}", place(ahead), waiter.owner)
}

#[cfg(test)]
mod tests {
    use crate::view::samples::{foreign, free, held, with_queue};

    use super::*;

    #[test]
    fn a_held_lock_shows_who_how_long_who_waits_and_how_to_end_it() {
        assert_eq!(
            of(
                "db migrate",
                "'db migrate'",
                &with_queue(held(41), &[31, 0])
            ),
            "\"db migrate\" is held\n    \
             holder  deploy@web-3 (pid 4121: migrate.sh)\n    \
             fence   41\n    \
             held    3m12s\n    \
             lease   24s left, unless renewed\n    \
             queue   2 waiting\n    \
             \x20       1st in line: deploy@web-3 (pid 4121: next), alive, or passed over in 31s\n    \
             \x20       2nd in line: deploy@web-3 (pid 4121: next), SILENT: will be passed over\n    \
             break   leasehold break --if-fence 41 'db migrate'\n"
        );
    }

    #[test]
    fn a_free_lock_shows_who_gets_it_next() {
        assert_eq!(of("x", "x", &free()), "\"x\" is free\n");
        assert!(of("x", "x", &with_queue(free(), &[3])).contains("queue   1 waiting\n"));
    }

    #[test]
    fn foreign_lock_shows_its_likely_format_and_no_break_command() {
        assert_eq!(
            of("a\u{1b}b", "", &foreign("hash", b"")),
            "\"a\\u{1b}b\" is held\n    \
             holder  a foreign lock: hash, looks like Redisson's (a hash)\n    \
             lease   NEVER ENDS: the program that set this key must delete it\n    \
             queue   0 waiting\n"
        );
    }
}
