//! The command line, compatible with cargo's own test harness. Unknown words are errors.

use crate::Tale;

/// Options of that harness with and without a value. Their meaning is the same here, or they have no effect.
const WITH_VALUE: &str = "--skip --test-threads --color --format --logfile --shuffle-seed -Z";
const ALONE: &str = "--list --exact --ignored --include-ignored --nocapture --no-capture --show-output \
                     --quiet -q --test --bench --shuffle --report-time --ensure-time";

/// The number of clients tested in parallel, unless `--test-threads` is given.
const AT_ONCE: usize = 5;

/// The chosen stories.
#[derive(Debug)]
pub(crate) struct Args {
    chosen: Vec<String>,
    skipped: Vec<String>,
    exact: bool,
    /// `--ignored`: no story is marked as ignored, so none runs.
    ignored: bool,
    /// Print the titles only.
    pub(crate) list: bool,
    pub(crate) at_once: usize,
}

fn is_in(options: &str, word: &str) -> bool {
    options.split(' ').any(|option| option == word)
}

impl Args {
    /// Parses the arguments. The error names an unknown word.
    pub(crate) fn read(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args = Self {
            chosen: Vec::new(),
            skipped: Vec::new(),
            exact: false,
            ignored: false,
            list: false,
            at_once: AT_ONCE,
        };
        let mut words = words;
        while let Some(word) = words.next() {
            let (option, mut value) = match word.split_once('=') {
                Some((option, value)) if word.starts_with('-') => (option, Some(value.to_owned())),
                _ => (word.as_str(), None),
            };
            if is_in(WITH_VALUE, option) {
                value = value.or_else(|| words.next());
                let value = value.ok_or_else(|| format!("{option} needs a value"))?;
                args.set(option, value)?;
            } else if is_in(ALONE, &word) {
                args.exact |= word == "--exact";
                args.list |= word == "--list";
                args.ignored |= word == "--ignored";
            } else if word.starts_with('-') {
                return Err(format!("{word} is no option here"));
            } else {
                args.chosen.push(word);
            }
        }
        Ok(args)
    }

    fn set(&mut self, option: &str, value: String) -> Result<(), String> {
        match option {
            "--skip" => self.skipped.push(value),
            "--test-threads" => {
                let number = value.parse().ok().filter(|number| *number > 0);
                self.at_once = number.ok_or_else(|| format!("{option} {value} is no number"))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// True if the story with this title is chosen.
    pub(crate) fn want(&self, title: &str) -> bool {
        let is = |word: &String| {
            if self.exact {
                title == word
            } else {
                title.contains(word.as_str())
            }
        };
        let chosen = self.chosen.is_empty() || self.chosen.iter().any(is);
        chosen && !self.ignored && !self.skipped.iter().any(is)
    }
}

/// The test of this module, as a story: this harness has no other place for it.
pub(crate) const STORIES: &[Tale] = &[(
    "arguments words_choose_and_leave_out_as_in_cargos_harness",
    words_choose_and_leave_out_as_in_cargos_harness,
)];

fn words_choose_and_leave_out_as_in_cargos_harness() -> String {
    let read = |line: &str| Args::read(line.split_whitespace().map(str::to_owned));
    for (line, wanted) in [
        ("", true),
        ("counter", true),
        ("nothing counter", true),
        ("nothing", false),
        ("--skip redis", false),
        ("--skip=redis", false),
        ("--skip nothing", true),
        ("--test-threads 1 --color never --format=pretty -q", true),
        ("--exact counter", false),
        ("--exact redis-py counter", false),
        ("--ignored", false),
        ("--include-ignored --nocapture", true),
    ] {
        let args = read(line).unwrap();
        assert_eq!(args.want("redis-py counter"), wanted, "{line}");
    }
    assert_eq!(read("--test-threads=7").unwrap().at_once, 7);
    assert!(read("--list").unwrap().list);
    for line in ["--skip", "--frobnicate", "--test-threads 0", "--list=x"] {
        assert!(read(line).is_err(), "{line}");
    }
    String::new()
}
