//! The URLs of a quorum: several times `--url`, several in a setting, or one that names all servers.

use super::{SECRET, local, run, used, write};
use crate::common::{Done, Run, Store};

/// URLs of servers that are not there.
const A: &str = "redis://127.0.0.1:1/";
const B: &str = "redis://:S3CR3T@127.0.0.1:2/";
const C: &str = "valkey://127.0.0.1:3/";

const D: &str = "rediss://127.0.0.1:4/";

/// One URL for all of them.
const ALL: &str = "redis+quorum://u:S3CR3T@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/";

/// A quorum of these servers, as errors show it.
const SHOWN: &str = "quorum of 3: redis://127.0.0.1:1, redis://127.0.0.1:2";

/// The error of a quorum whose servers are not there.
const TAKEN: &str = "no majority (";

const TWO: &str = "no majority of two is less than both: name 3 to 9 servers";

fn refused(run: Run, code: i32, says: &[&str]) -> Done {
    let done = run.words("x true").is(code, says);
    assert!(!done.stderr.contains(SECRET), "{done:?}");
    done
}

#[test]
fn several_urls_are_a_quorum() {
    let store = Store::local();
    let typed = |urls: &[&str]| {
        let run = run(&store);
        urls.iter().fold(run, |run, url| run.words(&["--url", url]))
    };
    let by_variable = |urls: &[&str]| run(&store).env("LEASEHOLD_URL", &urls.join(" "));
    for (urls, says) in [
        ([A, B, C].as_slice(), &[SHOWN, TAKEN][..]),
        (&[A, B, C, "unix:/s", D], &["quorum of 5", TAKEN]),
        (&[A, B], &[TWO]),
        (&[A, B, A], &["same server twice"]),
        (&[B, B, B], &["same server twice"]),
        (&[A, ALL], &["is a quorum already"]),
        (&[ALL, A, B], &["is a quorum already"]),
        (&[ALL], &[SHOWN, TAKEN]),
        (&[A, "memory:", B], &["\"memory:\": is no server"]),
        (&["redis+quorum://a,b"], &[TWO]),
    ] {
        // A quorum that is understood cannot be reached.
        let code = if says.contains(&TAKEN) { 69 } else { 78 };
        refused(typed(urls), code, says);
        let done = refused(by_variable(urls), code, says);
        assert!(
            done.stderr.contains("came from LEASEHOLD_URL: "),
            "{done:?}"
        );
    }
    let several = "--url: several URLs make a quorum";
    refused(typed(&["local:", A]), 78, &[several]);
    refused(typed(&[A, B, ""]), 78, &[several]);
    refused(typed(&[A, B, "local:"]), 78, &["\"local:\": is no server"]);
    refused(typed(&[&[A, B, C].join(" ")]), 69, &[SHOWN, TAKEN]);
}

#[test]
fn files_may_hold_the_urls_of_a_quorum() {
    let store = Store::local();
    let urls = [A, B, C].join(" ");
    let config = write(&store, "c.toml", &format!("url = \"{urls}\"\n"));
    let came = "c.toml, line 1, url: redis://127.0.0.1:1/ redis://127.0.0.1:2/ valkey://";
    let by_config = run(&store).words(&["--config", &config]);
    refused(by_config, 69, &[TAKEN, came]);
    let file = write(&store, "url", &format!("{urls}\n"));
    refused(run(&store).words(&["--url-file", &file]), 69, &[TAKEN]);

    let password = write(&store, "password", "S3CR3T\n");
    let with_password = |urls: &str| {
        let run = run(&store).env("LEASEHOLD_URL", urls);
        run.words(&["--password-file", &password])
    };
    refused(with_password(&[A, C, "unix:/s"].join(" ")), 69, &[TAKEN]);
    let without = ALL.replace("u:S3CR3T@", "");
    refused(with_password(&without), 69, &[TAKEN]);
    refused(with_password(&urls), 64, &["has a password already"]);
}

#[test]
fn path_of_a_local_file_may_hold_a_space() {
    let store = Store::local();
    let url = local(&store, "a b.db");
    for run in [
        run(&store).env("LEASEHOLD_URL", &url),
        run(&store).words(&["--url", &url]),
    ] {
        run.words("x true").is(0, &[]);
    }
    assert!(used(&store, "a b.db"));
}

#[test]
fn doctor_examines_all_servers() {
    let store = Store::local();
    let doctor = || Run::verb(store.dir.path(), "doctor").words("--quick");
    let several = doctor().words(&["--url", A, "--url", B, "--url", C]);
    for doctor in [several, doctor().words(&["--url", ALL])] {
        let done = doctor.is(69, &["redis://127.0.0.1:1: cannot connect"]);
        assert!(!done.stderr.contains(SECRET), "{done:?}");
    }
}
