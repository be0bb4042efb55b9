//! Help, completions, manual pages, and colour.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "the functions here are parts of tests")]

use std::fs;
use std::process::Command;

use crate::common::pty::Session;
use crate::common::tool;

const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

/// The codes of the table.
const CODES: [u8; 11] = [64, 66, 69, 70, 75, 77, 78, 79, 124, 126, 127];

/// The verbs below `cache`.
#[cfg(feature = "cache")]
const CACHE: &[&str] = &["get-or-refresh", "get", "invalidate"];
#[cfg(not(feature = "cache"))]
const CACHE: &[&str] = &[];

/// The verbs that are below another.
fn below() -> impl Iterator<Item = [&'static str; 2]> {
    let of_the_cache = CACHE.iter().map(|verb| ["cache", verb]);
    of_the_cache.chain([["quorum", "init"]])
}

/// The output of `leasehold words...`, which must succeed.
#[track_caller]
fn printed(words: &[&str]) -> String {
    let done = tool(LEASEHOLD, words);
    assert_eq!(
        (done.status.code(), done.stderr.len()),
        (Some(0), 0),
        "{done:?}"
    );
    String::from_utf8(done.stdout).unwrap()
}

/// The verbs that the help names.
fn verbs() -> Vec<String> {
    let help = printed(&["help"]);
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let (list, _) = list.split_once("\n\n").unwrap();
    let verb = |line: &str| Some(line.split_whitespace().next()?.to_owned());
    let verbs: Vec<String> = list
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(verb)
        .collect();
    assert!(verbs.len() >= 5, "{verbs:?}");
    verbs
}

#[test]
fn help_is_there_for_each_verb_and_for_the_exit_codes() {
    let table = printed(&["help", "exit-codes"]);
    for code in CODES {
        assert!(table.contains(&format!("\n  {code:<4} ")), "{code}");
    }
    for verb in verbs() {
        let help = printed(&["help", &verb]);
        assert!(help.contains(&format!("leasehold {verb}")), "{help}");
        assert_eq!(help, printed(&[&verb, "--help"]), "{verb}");
    }
    for [above, verb] in below() {
        let help = printed(&["help", above, verb]);
        assert!(
            help.contains(&format!("leasehold {above} {verb}")),
            "{help}"
        );
        assert_eq!(help, printed(&[above, verb, "--help"]), "{verb}");
    }
    let done = tool(LEASEHOLD, &["help", "quorum", "inti"]);
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(64));
    assert!(
        said.contains("there are    init") && !said.contains("exit-codes"),
        "{said}"
    );
    // The facts that options cannot express.
    assert!(printed(&["help", "run"]).contains("leasehold run [OPTIONS] LOCK [--] CMD [ARG...]"));
    assert!(printed(&["help", "dev"]).contains("leasehold dev [OPTIONS] [-- CMD [ARG...]]"));
    assert_eq!(printed(&["help"]), printed(&["--help"]));
    assert!(!printed(&["help", "dev"]).contains("guardian"));
    let done = tool(LEASEHOLD, &["help", "rnu"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(64));
    assert!(said.contains("no such verb: \"rnu\" (exit 64)") && said.contains("exit-codes"));
    let done = tool(LEASEHOLD, &["rnu", "x", "true"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(64));
    assert!(
        said.contains("did you mean    leasehold run\n")
            && said.contains("there are    run, hold,"),
        "{said}"
    );
    let done = tool(LEASEHOLD, &["lab", "show", "set-ex-del"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(64));
    assert!(said.contains("cargo run -p leasehold-lab"), "{said}");
}

#[test]
fn the_short_help_of_every_verb_fits_on_a_small_screen() {
    let below = below().map(|words| words.map(str::to_owned).to_vec());
    for words in verbs().into_iter().map(|verb| vec![verb]).chain(below) {
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        words.push("-h");
        let lines = printed(&words).lines().count();
        assert!(lines <= 25, "{words:?}: {lines} lines");
    }
    let (short, whole) = (printed(&["run", "-h"]), printed(&["run", "--help"]));
    for word in [
        "--try",
        "--wait",
        "--skip",
        "--ttl",
        "--url ",
        "leasehold hold LOCK",
        "79",
    ] {
        assert!(short.contains(word), "{word}: {short}");
    }
    for word in ["--grace", "Waiting:", "LEASEHOLD_FENCE", "\n  126 "] {
        assert!(
            whole.contains(word) && !short.contains(word.trim()),
            "{word}: {whole}"
        );
    }
}

/// Users who set a limit rely on it, so the help must name the exceptions.
#[test]
fn a_limit_says_how_long_a_silent_server_takes() {
    let said = "takes up to twice --request-timeout more (4s), and the exit code is 69";
    for verb in ["run", "hold", "acquire", "wait"] {
        let (short, whole) = (printed(&[verb, "-h"]), printed(&[verb, "--help"]));
        let of_options = if verb == "wait" { 1 } else { 2 };
        assert_eq!(whole.matches(said).count(), of_options, "{whole}");
        assert!(!short.contains(said), "{short}");
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let script = format!("{LEASEHOLD} help exit-codes | true; exit ${{PIPESTATUS[0]}}");
    let done = tool("bash", &["-c", &script]);
    assert_eq!(
        (done.status.code(), done.stderr.len()),
        (Some(0), 0),
        "{done:?}"
    );
}

#[test]
fn bash_completes_verbs_and_options() {
    let complete = |words: &[&str]| {
        let script = format!(
            "source <({LEASEHOLD} completions bash) || exit 3
             COMP_WORDS=({}); COMP_CWORD={}
             _leasehold leasehold \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            words.join(" "),
            words.len() - 1
        );
        let done = tool("bash", &["--norc", "--noprofile", "-c", &script]);
        assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
        let found = String::from_utf8(done.stdout).unwrap();
        found.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(complete(&["leasehold", "ru"]), ["run"]);
    assert_eq!(complete(&["leasehold", "run", "--url-f"]), ["--url-file"]);
    assert_eq!(complete(&["leasehold", "help", "exit"]), ["exit-codes"]);
    assert_eq!(complete(&["leasehold", "quorum", "in"]), ["init"]);
    assert_eq!(complete(&["leasehold", "man", "ru"]), ["run"]);
    assert_eq!(complete(&["leasehold", "--color", "al"]), ["always"]);
    assert_eq!(complete(&["leasehold", "completions", "fi"]), ["fish"]);
    assert!(!complete(&["leasehold", "dev", "--"]).contains(&"--guardian".into()));
    for shell in ["zsh", "fish"] {
        let script = printed(&["completions", shell]);
        assert!(
            script.contains("url-file") && !script.contains("guardian"),
            "{shell}"
        );
    }
}

/// Renders a page as a reader sees it, where `groff` is installed.
fn rendered(page: &str) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("page.1");
    fs::write(&file, page).unwrap();
    let mut groff = Command::new("groff");
    groff
        .args(["-man", "-Tascii", "-ww", "-P-c", "-P-b", "-P-u"])
        .arg(file);
    let done = groff.output().ok()?;
    assert!(
        done.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    Some(String::from_utf8(done.stdout).unwrap())
}

#[test]
fn manual_pages_say_what_help_says() {
    let dir = tempfile::tempdir().unwrap();
    printed(&["man", "--dir", dir.path().to_str().unwrap()]);
    let page = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!(page("leasehold.1"), printed(&["man"]));
    let below = below().map(|words| words.map(str::to_owned).to_vec());
    let verbs = verbs().into_iter().map(|verb| vec![verb]).chain(below);
    let verbs: Vec<Vec<String>> = verbs.collect();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1 + verbs.len());
    for verb in verbs {
        let words: Vec<&str> = verb.iter().map(String::as_str).collect();
        let page = page(&format!("leasehold-{}.1", words.join("-")));
        assert_eq!(page, printed(&[&["man"], words.as_slice()].concat()));
        let verb = words.join(" ");
        for section in [".TH leasehold-", ".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS"] {
            assert!(page.contains(section), "{verb}: {section}");
        }
        assert!(!page.contains("guardian"), "{page}");
        rendered(&page);
    }
    let run = printed(&["man", "run"]);
    assert!(
        run.contains("leasehold run [OPTIONS] LOCK [\\-\\-] CMD [ARG...]"),
        "{run}"
    );
    let Some(text) = rendered(&run) else {
        eprintln!("not rendered: no groff here");
        return;
    };
    assert!(
        text.contains("leasehold run [OPTIONS] LOCK [--] CMD [ARG...]"),
        "{text}"
    );
    // The table is a table.
    for code in CODES {
        assert!(
            text.contains(&format!("\n         {code:<4} ")),
            "{code}: {text}"
        );
    }
    rendered(&printed(&["man"]));
}

/// The terminal output of a failing run, with these variables.
fn shown(words: &[&str], variables: &[(&str, &str)]) -> String {
    let mut session = Session::start(&[&[LEASEHOLD], words].concat(), |command| {
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        command.envs(variables.iter().copied());
    });
    session.until("\n");
    session.end();
    session.shown()
}

const FAILS: [&str; 4] = ["run", "--url=memory:", "x", "true"];

#[test]
fn a_terminal_gets_colour_unless_it_must_not() {
    let coloured = "\x1b[1m\x1b[31mleasehold:\x1b[0m ";
    let said = shown(&FAILS, &[]);
    assert!(
        said.contains(coloured) && said.contains("\x1b[1m(exit 78)\x1b[0m"),
        "{said:?}"
    );
    let help = shown(&["help", "run"], &[]);
    assert!(help.contains('\x1b'), "{help:?}");
    for words in [
        FAILS.as_slice(),
        &["help", "run"],
        &["run", "--help"],
        &["--tyr"],
        &["help", "exit-codes"],
    ] {
        for variables in [
            [("NO_COLOR", "1")].as_slice(),
            &[("TERM", "dumb")],
            &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")],
        ] {
            let said = shown(words, variables);
            assert!(!said.contains('\x1b'), "{words:?} {variables:?}: {said:?}");
        }
        let said = shown(
            &[&["--color", "never"], words].concat(),
            &[("CLICOLOR_FORCE", "1")],
        );
        assert!(!said.contains('\x1b'), "{words:?}: {said:?}");
    }
    let said = shown(
        &[&["--color=always"], FAILS.as_slice()].concat(),
        &[("NO_COLOR", "1")],
    );
    assert!(said.contains(coloured), "{said:?}");
}

#[test]
fn what_is_no_terminal_gets_colour_only_if_it_is_asked_for() {
    let said = |words: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new(LEASEHOLD);
        command.args(words).env("TERM", "xterm");
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        let done = command.envs(variables.iter().copied()).output().unwrap();
        String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
    };
    for words in [
        FAILS.as_slice(),
        &["--help"],
        &["run", "--tyr"],
        &["help", "dev"],
    ] {
        assert!(!said(words, &[]).contains('\x1b'), "{words:?}");
        assert!(
            said(words, &[("CLICOLOR_FORCE", "1")]).contains('\x1b'),
            "{words:?}"
        );
        let always = [&["--color", "always"], words].concat();
        assert!(said(&always, &[]).contains('\x1b'), "{words:?}");
    }
    // After the verb too, but not after the lock, where options are the command's.
    assert!(
        said(
            &["run", "--color=always", "--url=memory:", "x", "true"],
            &[]
        )
        .contains('\x1b')
    );
    let echo = ["run", "--url=memory:", "x", "echo", "--color=always"];
    assert!(!said(&echo, &[]).contains('\x1b'));
}
