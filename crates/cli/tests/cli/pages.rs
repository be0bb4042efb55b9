//! Help, completions, manual pages, and colour.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "the functions here are parts of tests")]

use std::fs;
use std::process::Command;

use crate::common::pty::Session;
use crate::common::{LEASEHOLD, Words, rows, tool};

/// The codes of the table.
const CODES: [u8; 11] = [64, 66, 69, 70, 75, 77, 78, 79, 124, 126, 127];

/// The output of `leasehold words...`, which must succeed.
#[track_caller]
fn printed(words: &str) -> String {
    let done = tool(LEASEHOLD, &words.list());
    assert!(done.status.success(), "{done:?}");
    assert_eq!(done.stderr.len(), 0, "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

/// What `leasehold words...` says about a mistake (64).
#[track_caller]
fn mistake(words: &str) -> String {
    let done = tool(LEASEHOLD, &words.list());
    assert_eq!(done.status.code(), Some(64), "{done:?}");
    String::from_utf8(done.stderr).unwrap()
}

/// The verbs that the help names, and those below another verb.
fn verbs() -> Vec<String> {
    let help = printed("help");
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let (list, _) = list.split_once("\n\n").unwrap();
    let lines = list.lines().filter_map(|line| line.strip_prefix("  "));
    let lines = lines.filter(|line| !line.starts_with(' '));
    let verbs = lines.filter_map(|line| line.split_whitespace().next());
    let mut verbs: Vec<String> = verbs.map(str::to_owned).collect();
    assert!(verbs.len() >= 5, "{verbs:?}");
    let mut below = vec!["quorum init"];
    if cfg!(feature = "cache") {
        below.extend(["cache get-or-refresh", "cache get", "cache invalidate"]);
    }
    verbs.extend(below.into_iter().map(str::to_owned));
    verbs
}

#[test]
fn help_is_there_for_each_verb_and_for_the_exit_codes() {
    let version = format!("leasehold {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(printed("--version"), version);
    assert_eq!(printed("help"), printed("--help"));
    let (table, run) = (printed("help exit-codes"), printed("run --help"));
    for code in CODES {
        let row = format!("\n  {code:<4} ");
        assert!(table.contains(&row), "{code}");
        // Only other verbs end with this one.
        assert!(code == 66 || run.contains(&row), "{code}");
    }
    for verb in verbs() {
        let help = printed(&format!("help {verb}"));
        assert!(help.contains(&format!("leasehold {verb}")), "{help}");
        assert_eq!(help, printed(&format!("{verb} --help")), "{verb}");
    }
    // The facts that options cannot express.
    let usage = "leasehold run [OPTIONS] LOCK [--] CMD [ARG...]";
    assert!(run.contains(usage), "{run}");
    let dev = printed("help dev");
    let usage = "leasehold dev [OPTIONS] [-- CMD [ARG...]]";
    assert!(dev.contains(usage) && !dev.contains("guardian"), "{dev}");
}

#[test]
fn mistaken_verbs_are_told_of_those_that_there_are() {
    for [words, says] in rows(
        r#"
                         | Usage: leasehold
        help quorum inti | there are    init
        help rnu         | no such verb: "rnu" (exit 64)
        help rnu         | exit-codes
        rnu x true       | did you mean    leasehold run
        rnu x true       | there are    run, hold,
        lab show set     | cargo run -p leasehold-lab
    "#,
    ) {
        let said = mistake(words);
        assert!(said.contains(says), "{words}: {said}");
    }
    assert_eq!(tool(LEASEHOLD, &[]).stdout.len(), 0);
    assert!(!mistake("help quorum inti").contains("exit-codes"));
}

#[test]
fn the_short_help_of_every_verb_fits_on_a_small_screen() {
    for verb in verbs() {
        let lines = printed(&format!("{verb} -h")).lines().count();
        assert!(lines <= 25, "{verb}: {lines} lines");
    }
    let (short, whole) = (printed("run -h"), printed("run --help"));
    let shown = ["--try", "--wait", "--skip", "--ttl", "--url ", "79"];
    for word in shown.into_iter().chain(["leasehold hold LOCK"]) {
        assert!(short.contains(word), "{word}: {short}");
    }
    for word in ["--grace", "Waiting:", "LEASEHOLD_FENCE", "\n  126 "] {
        assert!(whole.contains(word), "{word}: {whole}");
        assert!(!short.contains(word.trim()), "{word}: {short}");
    }
}

/// Users who set a limit rely on it, so the help must name the exceptions.
#[test]
fn a_limit_says_how_long_a_silent_server_takes() {
    let said = "takes up to twice --request-timeout more (4s), and the exit code is 69";
    for (verb, of_options) in [("run", 2), ("hold", 2), ("acquire", 2), ("wait", 1)] {
        let whole = printed(&format!("{verb} --help"));
        assert_eq!(whole.matches(said).count(), of_options, "{whole}");
        let short = printed(&format!("{verb} -h"));
        assert!(!short.contains(said), "{short}");
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let script = format!("{LEASEHOLD} help exit-codes | true; exit ${{PIPESTATUS[0]}}");
    let done = tool("bash", &["-c", &script]);
    assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
}

#[test]
fn bash_completes_verbs_and_options() {
    let complete = |words: &str| {
        let count = words.split(' ').count() - 1;
        let script = format!(
            "source <({LEASEHOLD} completions bash) || exit 3
             COMP_WORDS=({words}); COMP_CWORD={count}
             _leasehold leasehold \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"
             printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let done = tool("bash", &["--norc", "--noprofile", "-c", &script]);
        assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    for (typed, completed) in [
        ("ru", "run"),
        ("run --url-f", "--url-file"),
        ("help exit", "exit-codes"),
        ("quorum in", "init"),
        ("man ru", "run"),
        ("--color al", "always"),
        ("completions fi", "fish"),
    ] {
        let found = complete(&format!("leasehold {typed}"));
        assert_eq!(found, format!("{completed}\n"), "{typed}");
    }
    assert!(!complete("leasehold dev --").contains("--guardian"));
    for shell in ["zsh", "fish"] {
        let script = printed(&format!("completions {shell}"));
        assert!(script.contains("url-file"), "{shell}");
        assert!(!script.contains("guardian"), "{shell}");
    }
}

/// Renders a page as a reader sees it, where `groff` is installed.
fn rendered(page: &str) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("page.1");
    fs::write(&file, page).unwrap();
    let mut groff = Command::new("groff");
    groff.args(["-man", "-Tascii", "-ww", "-P-c", "-P-b", "-P-u"]);
    let done = groff.arg(file).output().ok()?;
    let complaints = String::from_utf8_lossy(&done.stderr);
    assert_eq!(complaints, "");
    Some(String::from_utf8(done.stdout).unwrap())
}

#[test]
fn manual_pages_say_what_help_says() {
    let dir = tempfile::tempdir().unwrap();
    printed(&format!("man --dir {}", dir.path().display()));
    let page = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!(page("leasehold.1"), printed("man"));
    let verbs = verbs();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1 + verbs.len());
    for verb in verbs {
        let page = page(&format!("leasehold-{}.1", verb.replace(' ', "-")));
        assert_eq!(page, printed(&format!("man {verb}")));
        for section in [".TH leasehold-", ".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS"] {
            assert!(page.contains(section), "{verb}: {section}");
        }
        assert!(!page.contains("guardian"), "{page}");
        rendered(&page);
    }
    let run = printed("man run");
    let usage = "leasehold run [OPTIONS] LOCK [\\-\\-] CMD [ARG...]";
    assert!(run.contains(usage), "{run}");
    let Some(text) = rendered(&run) else {
        eprintln!("not rendered: no groff here");
        return;
    };
    assert!(text.contains(&usage.replace('\\', "")), "{text}");
    // The table is a table.
    for code in CODES {
        let row = format!("\n         {code:<4} ");
        assert!(text.contains(&row), "{code}: {text}");
    }
    rendered(&printed("man"));
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
    // How each variable decides is a table of `messages`.
    for words in [
        FAILS.as_slice(),
        &["help", "run"],
        &["run", "--help"],
        &["--tyr"],
        &["help", "exit-codes"],
    ] {
        let plain = shown(words, &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]);
        let forced = [("CLICOLOR_FORCE", "1")];
        let never = shown(&[&["--color", "never"], words].concat(), &forced);
        for said in [plain, never] {
            assert!(!said.contains('\x1b'), "{words:?}: {said:?}");
        }
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
        let forced = said(words, &[("CLICOLOR_FORCE", "1")]);
        assert!(forced.contains('\x1b'), "{words:?}");
        let always = [&["--color", "always"], words].concat();
        assert!(said(&always, &[]).contains('\x1b'), "{words:?}");
    }
    // After the verb too, but not after the lock, where options are the command's.
    let run = ["run", "--color=always", "--url=memory:", "x", "true"];
    assert!(said(&run, &[]).contains('\x1b'));
    let echo = ["run", "--url=memory:", "x", "echo", "--color=always"];
    assert!(!said(&echo, &[]).contains('\x1b'));
}
