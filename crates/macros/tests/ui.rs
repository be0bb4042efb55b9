//! What must not compile, with the messages that a user reads. The compiler's own parts of a message differ from version to version:
//! `TRYBUILD=overwrite` writes those of this one.

#[test]
fn wrong_use_is_told_by_the_compiler() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
