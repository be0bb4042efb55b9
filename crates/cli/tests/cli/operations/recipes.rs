//! Reads the recipes of `docs/operations.md`, and provides a workplace with a store and the programs that they
//! name.

#![allow(
    clippy::disallowed_methods,
    reason = "tests drive real processes in real time"
)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::Store;

const DOCUMENT: &str = include_str!("../../../../../docs/operations.md");

/// A block of the document that can be run: `<!-- recipe:NAME KIND [with=SCRIPT] [ran=PROGRAM,...] -->`.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    pub(crate) name: String,
    pub(crate) kind: String,
    /// The text of the block, without the fence.
    pub(crate) text: String,
    notes: Vec<(String, String)>,
}

impl Recipe {
    fn note(&self, key: &str) -> Vec<&str> {
        let found = self.notes.iter().find(|(name, _)| name == key);
        found
            .map(|(_, value)| value.split(',').collect())
            .unwrap_or_default()
    }
}

/// All recipes, in the order of the document.
pub(crate) fn all() -> Vec<Recipe> {
    let recipes: Vec<_> = DOCUMENT
        .split("<!-- recipe:")
        .skip(1)
        .map(|rest| {
            let (mark, rest) = rest.split_once(" -->\n\n").expect("a mark and a block");
            let mut words = mark.split(' ');
            let mut word = || words.next().expect("a name and a kind").to_owned();
            let (name, kind) = (word(), word());
            let notes = words
                .map(|note| note.split_once('=').expect("key=value"))
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect();
            let text = match rest.strip_prefix("```") {
                Some(block) => {
                    let (_, block) = block.split_once('\n').expect("a line after the fence");
                    block.split("```").next().expect("it ends")
                }
                None => rest.split("\n\n").next().expect("it ends"),
            };
            Recipe {
                name,
                kind,
                text: text.to_owned(),
                notes,
            }
        })
        .collect();
    assert!(recipes.len() > 10, "the document has recipes");
    recipes
}

/// One recipe.
pub(crate) fn recipe(name: &str) -> Recipe {
    all()
        .into_iter()
        .find(|recipe| recipe.name == name)
        .unwrap_or_else(|| panic!("no recipe {name}"))
}

/// Runs `test` with each recipe of a kind, each in its own workplace, and checks that the expected programs ran.
pub(crate) fn each(kind: &str, test: impl Fn(&Workplace, &Recipe)) {
    each_on(kind, Store::redis, test);
}

/// Runs `test` with each recipe of a kind, on stores of the given kind.
pub(crate) fn each_on(kind: &str, store: fn() -> Store, test: impl Fn(&Workplace, &Recipe)) {
    let recipes: Vec<_> = all().into_iter().filter(|r| r.kind == kind).collect();
    assert!(!recipes.is_empty(), "a recipe of kind {kind}");
    for recipe in recipes {
        eprintln!("{}:", recipe.name);
        let workplace = Workplace::on(store(), &recipe);
        test(&workplace, &recipe);
        for program in recipe.note("ran") {
            workplace.assert_ran(program);
        }
    }
}

/// The directory, the store and the programs of a recipe.
pub(crate) struct Workplace {
    pub(crate) store: Store,
}

impl Workplace {
    pub(crate) fn of(recipe: &Recipe) -> Self {
        Self::on(Store::redis(), recipe)
    }

    fn on(store: Store, recipe: &Recipe) -> Self {
        let workplace = Self { store };
        fs::create_dir(workplace.bin()).expect("a directory");
        symlink(
            env!("CARGO_BIN_EXE_leasehold"),
            workplace.bin().join("leasehold"),
        )
        .expect("a link");
        for name in ["report", "worker", "primary"] {
            workplace.stub(&workplace.bin().join(name));
        }
        for name in ["migrate.sh", "deploy.sh", "build.sh", "publish.sh"] {
            workplace.stub(&workplace.store.file(name));
        }
        for name in recipe.note("with") {
            let script = self::recipe(name);
            assert_eq!(script.kind, "script");
            program(&workplace.store.file(name), &script.text);
        }
        workplace
    }

    /// A program that records its fence.
    fn stub(&self, path: &Path) {
        let name = path.file_name().expect("a name").to_string_lossy();
        let ran = self.store.file(&format!("ran.{name}"));
        program(
            path,
            &format!("#!/bin/sh\necho \"$LEASEHOLD_FENCE\" > {}\n", ran.display()),
        );
    }

    pub(crate) fn bin(&self) -> PathBuf {
        self.store.file("bin")
    }

    /// The text with the paths of this workplace.
    pub(crate) fn adapted(&self, text: &str) -> String {
        text.replace("/usr/local/bin/", &format!("{}/", self.bin().display()))
            .replace("redis://locks.internal:6379/", &self.store.url)
    }

    #[track_caller]
    pub(crate) fn assert_ran(&self, program: &str) {
        let fence = fs::read_to_string(self.store.file(&format!("ran.{program}")));
        let fence = fence.unwrap_or_else(|error| panic!("{program} was not run: {error}"));
        assert!(
            fence.trim().parse::<u64>().is_ok(),
            "{program} was run without a lock: {fence:?}"
        );
    }

    /// A program with nothing in its environment but a path, a home and the store.
    pub(crate) fn command(&self, program: &str) -> Command {
        let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", self.bin().display());
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", "60", program])
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.store.dir.path())
            .env("LEASEHOLD_URL", &self.store.url)
            .current_dir(self.store.dir.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs a line or more of shell.
    pub(crate) fn shell(&self, text: &str) -> Output {
        let options = ["--noprofile", "--norc", "-eu", "-o", "pipefail", "-c"];
        let mut bash = self.command("bash");
        succeeds(bash.args(options).arg(self.adapted(text)))
    }

    /// Checks that the lock is free.
    pub(crate) fn assert_free(&self, lock: &str) {
        self.store.run(&["--try", lock, "true"]).is(0, &[]);
    }
}

/// Runs a command, and expects success.
#[track_caller]
pub(crate) fn succeeds(command: &mut Command) -> Output {
    let output = command.output().expect("run a program");
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

fn program(path: &Path, text: &str) {
    fs::write(path, text).expect("write a program");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("make it executable");
}
