//! The message of an attempt that gives up on a busy lock. Pure.

use leasehold::Snapshot;

use super::args::RetryHint;
use crate::messages::{quoted, span};
use crate::view::{fence_of, held_of, never_expires, who};

/// Formats the message. `options` are the options of the suggested next attempt.
pub(super) fn busy(
    lock: &str,
    outcome: &str,
    snapshot: &Snapshot,
    options: &str,
    again: RetryHint<'_>,
) -> String {
    let mut rows = vec![format!("{} {outcome}", quoted(lock))];
    let mut row = |what: &str, text: String| rows.push(format!("    {what:<7} {text}"));
    if let Some(holder) = &snapshot.holder {
        let (held, fence) = (held_of(holder), fence_of(holder));
        row("holder", format!("{}{held}{fence}", who(holder)));
        row(
            "lease",
            match holder.expires_in {
                Some(left) => format!("{} left, unless renewed", span(left)),
                None => "never ends: the program that set this key must delete it".into(),
            },
        );
    } else {
        row("holder", "gone meanwhile".into());
    }
    row("queue", format!("{} waiting", snapshot.queue.len()));
    let (verb, lock, end) = (again.verb, again.lock, again.command);
    if snapshot.holder.as_ref().is_some_and(never_expires) {
        // Waiting would never end.
        row(
            "next",
            "find the program that set this key; when it is gone for good, delete the key".into(),
        );
    } else {
        row("next", format!("leasehold {verb} {options}{lock}{end}"));
    }
    row("", format!("leasehold watch {lock}"));
    let fence = snapshot.holder.as_ref().and_then(|holder| holder.fence);
    if let Some(fence) = fence {
        row(
            "",
            format!("leasehold break --if-fence {fence} {lock}  (if its holder is gone for good)"),
        );
    }
    rows.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::samples::{foreign, held};

    #[test]
    fn a_busy_lock_says_who_how_long_and_what_to_type() {
        let again = RetryHint {
            verb: "run",
            lock: "'db migrate'",
            command: " -- ...",
        };
        let says = "is busy (exit 75)";
        assert_eq!(
            busy("db migrate", says, &held(41), "-w 5m ", again),
            "\"db migrate\" is busy (exit 75)\n    \
             holder  deploy@web-3 (pid 4121: migrate.sh), held 3m12s, fence 41\n    \
             lease   24s left, unless renewed\n    \
             queue   0 waiting\n    \
             next    leasehold run -w 5m 'db migrate' -- ...\n            \
             leasehold watch 'db migrate'\n            \
             leasehold break --if-fence 41 'db migrate'  (if its holder is gone for good)"
        );
        let snapshot = foreign("string", b"d2f1");
        let block = busy("x", "is busy", &snapshot, "", again);
        assert!(
            block.contains("a foreign client (string)\n")
                && block.contains("never ends: the program that set this key must delete it")
                && block.contains("next    find the program that set this key")
                && !block.contains("leasehold run"),
            "{block}"
        );
    }
}
