//! The scripts: their forms and their flags.

use super::*;

#[test]
fn script_begins_with_flags_and_contains_what_it_calls() {
    for source in &Scripts::default().sources[ACQUIRE_MANY..=INSPECT] {
        let (flagged, plain) = (&source.flagged.code, &source.plain.code);
        assert!(flagged.starts_with("#!lua"), "{flagged}");
        assert!(!plain.lines().any(|line| line.starts_with("#!")), "{plain}");
        assert!(plain.contains("local function each("), "{plain}");
        assert!(plain.contains("\nreturn each("), "{plain}");
        assert_ne!(source.flagged.sha, source.plain.sha);
    }
}

#[test]
fn only_what_frees_or_keeps_a_lock_works_on_a_full_server() {
    let flags = |script: usize| {
        let sources = sources();
        sources[script]
            .flagged
            .code
            .lines()
            .next()
            .map(str::to_owned)
    };
    for script in [TAKE, ACQUIRE_MANY, TIMESTAMP_ACQUIRE] {
        assert_eq!(flags(script).as_deref(), Some("#!lua"));
    }
    for script in [
        SETTLE,
        SETTLE_MANY,
        BREAK,
        TIMESTAMP_EXTEND,
        TIMESTAMP_RELEASE,
    ] {
        assert_eq!(flags(script).as_deref(), Some("#!lua flags=allow-oom"));
    }
    #[cfg(feature = "entries")]
    for (script, works) in [
        (CACHE_BEGIN, false),
        (CACHE_COMMIT, false),
        (CACHE_RENEW, true),
        (CACHE_ABANDON, true),
        (CACHE_INVALIDATE, true),
    ] {
        let marked = flags(script).is_some_and(|flags| flags == "#!lua flags=allow-oom");
        assert_eq!(marked, works, "{script}");
    }
}
