//! Runs the example as its first lines say, without a server and on a real one, and checks its output.

use testkit::examples::outputs;

#[test]
fn a_stampede_is_one_rendering_for_each_expiry_with_the_guard() {
    for text in outputs("stampede") {
        let count = |name: &str, word: usize| -> u32 {
            let line = text.lines().find(|line| line.starts_with(name));
            let words: Vec<_> = line
                .expect("a line of its own")
                .split_whitespace()
                .collect();
            words[word].parse().expect("a count")
        };
        // `without the guard: N renderings`, `with the guard: N renderings for M expiries`.
        let (plain, guarded, expiries) = (
            count("without the guard", 3),
            count("with the guard", 3),
            count("with the guard", 6),
        );
        assert_eq!(guarded, expiries, "{text}");
        assert!(expiries >= 2 && plain > 4 * guarded, "{text}");
    }
}
