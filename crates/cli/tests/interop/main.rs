//! Locks shared with foreign programs: their real libraries and Leasehold, each in its own process.
//!
//! The test has its own `main`, which lists and counts skipped stories with their reason. Arguments choose
//! stories by a part of `<client> <story>`. `scripts/test` installs the libraries.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod args;
mod counter;
mod faces;
mod foreign;
mod late;
mod migrating;
mod peer;
mod quorum;
mod scene;
mod servers;
mod side;
mod stories;
mod timestamp;
mod types;

use std::collections::BTreeMap;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use leasehold::Clock;

use crate::args::Args;
use crate::servers::Servers;

/// A title, and a story that returns its measurements and panics on failure.
type Tale = (&'static str, fn() -> String);

/// The same with a client.
type Story = (String, Box<dyn Fn() -> String + Sync>);

/// Stories that run one after the other, in parallel with other jobs.
struct Job {
    who: String,
    /// The reason why they cannot run here, if so.
    missing: Box<dyn Fn() -> Option<String> + Sync>,
    stories: Vec<Story>,
}

/// The stories without a client, and the program they need.
const TALES: &[(Option<&str>, &[Tale])] = &[
    (Some("flock"), migrating::STORIES),
    (None, types::STORIES),
    (Some("setpriv"), peer::STORIES),
    (None, timestamp::TALES),
    (None, args::STORIES),
    (None, faces::TALES),
];

fn jobs() -> Vec<Job> {
    let tales = TALES.iter().flat_map(|(needs, tales)| {
        tales.iter().map(move |(title, tell)| Job {
            who: (*title).to_owned(),
            missing: Box::new(move || {
                let missing = needs.filter(|program| !foreign::works(program, &["--version"]));
                missing.map(|program| format!("{program} is not installed"))
            }),
            stories: vec![((*title).to_owned(), Box::new(tell))],
        })
    });
    let with = |kind: &str, stories: fn(&'static foreign::Foreign) -> Vec<Story>| {
        let kind = kind.to_owned();
        foreign::ALL.iter().map(move |foreign| Job {
            who: format!("{}{kind}", foreign.name),
            missing: Box::new(move || foreign.missing()),
            stories: stories(foreign),
        })
    };
    // The migrations take longest and mostly wait.
    tales
        .chain(with(" quorum", quorum::stories))
        .chain(with("", stories::of))
        .chain(timestamp::jobs())
        .chain(faces::jobs())
        .collect()
}

/// Functions with their names.
macro_rules! named {
    ($($story:ident),* $(,)?) => { [$((stringify!($story), $story)),*] };
}
pub(crate) use named;

/// The results of all stories.
#[derive(Default)]
struct Tally {
    passed: AtomicUsize,
    failed: Mutex<Vec<String>>,
    /// The number of stories, by client and reason.
    skipped: Mutex<BTreeMap<(String, String), usize>>,
    left_out: AtomicUsize,
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    match &words[..] {
        [word, who, nodes, counter, template] if word == side::WORD => {
            side::run(who, &Servers::read(nodes, counter), template);
            return ExitCode::SUCCESS;
        }
        [word, who, port, unit] if word == timestamp::side::WORD => {
            timestamp::side::run(who, port.parse().unwrap(), unit);
            return ExitCode::SUCCESS;
        }
        [word, face] if word == faces::WORD => {
            faces::act(face);
            return ExitCode::SUCCESS;
        }
        [word, port] if word == peer::WORD => peer::one_that_waits(port.parse().unwrap()),
        _ => {}
    }
    let args = match Args::read(words.into_iter()) {
        Ok(args) => args,
        Err(why) => {
            eprintln!("interop: {why}");
            return ExitCode::FAILURE;
        }
    };
    let jobs = jobs();
    if args.list {
        let titles = jobs.iter().flat_map(|job| &job.stories);
        for (title, _) in titles.filter(|(title, _)| args.want(title)) {
            println!("{title}: test");
        }
        return ExitCode::SUCCESS;
    }

    let began = Clock::system().now();
    let tally = Tally::default();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..args.at_once {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::SeqCst)) {
                    run(job, &args, &tally);
                }
            });
        }
    });
    let took = Clock::system().now().since(began);
    summary(&tally, &format!("{took:.1?}"))
}

fn run(job: &Job, args: &Args, tally: &Tally) {
    let stories = job.stories.iter();
    let (wanted, left_out): (Vec<_>, Vec<_>) = stories.partition(|(title, _)| args.want(title));
    tally.left_out.fetch_add(left_out.len(), Ordering::SeqCst);
    if wanted.is_empty() {
        return;
    }
    if let Some(why) = (job.missing)() {
        let mut skipped = tally.skipped.lock().unwrap();
        *skipped.entry((job.who.clone(), why)).or_default() += wanted.len();
        return;
    }
    for (title, story) in wanted {
        tell(title, tally, story);
    }
}

/// Runs one story and prints its result.
fn tell(title: &str, tally: &Tally, story: impl FnOnce() -> String) {
    if let Ok(said) = catch_unwind(AssertUnwindSafe(story)) {
        let colon = if said.is_empty() { "" } else { ": " };
        println!("{title} ... ok{colon}{said}");
        tally.passed.fetch_add(1, Ordering::SeqCst);
    } else {
        println!("{title} ... FAILED");
        tally.failed.lock().unwrap().push(title.to_owned());
    }
}

fn summary(tally: &Tally, took: &str) -> ExitCode {
    let passed = tally.passed.load(Ordering::SeqCst);
    let left_out = tally.left_out.load(Ordering::SeqCst);
    let failed = tally.failed.lock().unwrap();
    let skipped = tally.skipped.lock().unwrap();
    for title in failed.iter() {
        println!("FAILED {title}");
    }
    for ((who, why), stories) in skipped.iter() {
        println!("SKIPPED {who} ({stories}): {why}");
    }
    println!(
        "\ninterop: {passed} stories passed, {} failed, {} skipped, {left_out} not chosen; {took}",
        failed.len(),
        skipped.values().sum::<usize>()
    );
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
