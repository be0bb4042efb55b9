//! The rules for stores inside a process: a file of one host, and the memory of one client.

use leasehold::doctor::FileFacts;

use super::report::Finding;
use super::rule::Judgement;

pub(super) fn file(facts: &FileFacts) -> Vec<Finding> {
    vec![
        write(facts).of_check("file.write"),
        system(facts).of_check("file.system"),
        Judgement::info("these locks are for the processes of this host; others do not see them")
            .fix("for several hosts: redis://host:6379/")
            .of_check("scope.host"),
    ]
}

pub(super) fn memory() -> Finding {
    Judgement::info("these locks are for one client; nobody else sees them")
        .fix("for the processes of this host: local:")
        .of_check("scope.process")
}

fn write(facts: &FileFacts) -> Judgement {
    let not = if facts.is_writable { "" } else { "not " };
    let text = format!(
        "the file can be read ({} locks) and, with its directory, {not}be written",
        facts.locks
    );
    if facts.is_writable {
        return Judgement::ok(text);
    }
    if let Some(why) = &facts.refusal {
        return Judgement::fail(format!("{text}: {why}"))
            .fix("free space there (df shows it), give this user the right to write, or choose another with local:/path/to/file");
    }
    Judgement::fail(text).fix(
        "give this user the right to write the file and its directory, or choose another with local:/path/to/file",
    )
}

fn system(facts: &FileFacts) -> Judgement {
    match &facts.file_system {
        Some(kind) => Judgement::ok(format!("it is on {kind}, which no other host shares")),
        None => Judgement::unknown(
            "the kind of its file system is not known; on one that hosts share, locks break",
        ),
    }
}
