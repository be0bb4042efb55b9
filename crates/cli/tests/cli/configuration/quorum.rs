//! The URLs of a quorum: several times `--url`, several in a setting, or one that names all servers.

use super::{SECRET, local, run, used, write};
use crate::common::{Done, Run, Store};

/// URLs of servers that are not there.
const A: &str = "redis://127.0.0.1:1/";
const B: &str = "redis://:S3CR3T@127.0.0.1:2/";
const C: &str = "valkey://127.0.0.1:3/";

/// A quorum of these servers, as errors show it.
const SHOWN: &str = "quorum of 3: redis://127.0.0.1:1, redis://127.0.0.1:2";

/// What a quorum is answered with.
const TAKEN: &str = "a quorum is not supported yet";

const TWO: &str = "no majority of two is less than both: name 3 to 9 servers";

fn refused(run: Run, code: i32, says: &[&str]) -> Done {
    let done = run.words(&["x", "true"]).output();
    done.is(code, says);
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
    let quorum = "redis+quorum://a,u:S3CR3T@b,c/";
    for (urls, says) in [
        ([A, B, C].as_slice(), &[SHOWN, TAKEN][..]),
        (&[A, B, C, "unix:/s", "rediss://h"], &["quorum of 5", TAKEN]),
        (&[A, B], &[TWO]),
        (&[A, B, A], &["same server twice"]),
        (&[B, B, B], &["same server twice"]),
        (&[A, quorum], &["is a quorum already"]),
        (&[quorum, A, B], &["is a quorum already"]),
        (&[quorum], &["quorum of 3: redis://a:6379", TAKEN]),
        (&[A, "memory:", B], &["\"memory:\": is no server"]),
        (&["redis+quorum://a,b"], &[TWO]),
    ] {
        refused(typed(urls), 78, says);
        let done = refused(by_variable(urls), 78, says);
        assert!(
            done.stderr.contains("came from LEASEHOLD_URL: "),
            "{done:?}"
        );
    }
    let several = "--url: several URLs make a quorum";
    refused(typed(&["local:", A]), 78, &[several]);
    refused(typed(&[A, B, ""]), 78, &[several]);
    refused(typed(&[A, B, "local:"]), 78, &["\"local:\": is no server"]);
    refused(typed(&[&[A, B, C].join(" ")]), 78, &[SHOWN, TAKEN]);
}

#[test]
fn files_may_hold_the_urls_of_a_quorum() {
    let store = Store::local();
    let urls = [A, B, C].join(" ");
    let config = write(&store, "c.toml", &format!("url = \"{urls}\"\n"));
    let came = "c.toml, line 1, url: redis://127.0.0.1:1/ redis://127.0.0.1:2/ valkey://";
    refused(
        run(&store).words(&["--config", &config]),
        78,
        &[TAKEN, came],
    );
    let file = write(&store, "url", &format!("{urls}\n"));
    refused(run(&store).words(&["--url-file", &file]), 78, &[TAKEN]);

    let password = write(&store, "password", "S3CR3T\n");
    let with_password = |urls: &str| {
        let run = run(&store).env("LEASEHOLD_URL", urls);
        run.words(&["--password-file", &password])
    };
    refused(with_password(&[A, C, "unix:/s"].join(" ")), 78, &[TAKEN]);
    refused(with_password("redis+quorum://a,b,c/"), 78, &[TAKEN]);
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
        run.words(&["x", "true"]).output().is(0, &[]);
    }
    assert!(used(&store, "a b.db"));
}

#[test]
fn doctor_examines_one_server_at_a_time() {
    let store = Store::local();
    let doctor = || Run::verb(store.dir.path(), "doctor").words(&["--quick"]);
    let several = doctor().words(&["--url", A, "--url", B, "--url", C]);
    let done = several.output();
    done.is(78, &["give the URL of one of them"]);
    assert!(!done.stderr.contains(SECRET), "{done:?}");
    let done = doctor().words(&["--url", "redis+quorum://a,b,c/"]).output();
    done.is(78, &[TAKEN]);
}
