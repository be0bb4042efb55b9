//! Locks shared with foreign programs: their real libraries and Leasehold, each in its own process.
//!
//! The test has its own `main`, which lists and counts skipped stories with their reason. Arguments choose
//! stories by a part of `<client> <story>`. `scripts/test` installs the libraries.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod args;
mod counter;
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

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use leasehold::Clock;

use crate::args::Args;
use crate::foreign::Foreign;
use crate::scene::Scene;
use crate::servers::Servers;
use crate::stories::Story;

/// A title, and a story that returns its measurements and panics on failure.
type Tale = (&'static str, fn() -> String);

/// The stories without a client of [`foreign::ALL`], and the program they need.
const TALES: &[(Option<&str>, &[Tale])] = &[
    (Some("flock"), migrating::STORIES),
    (None, types::STORIES),
    (Some("setpriv"), peer::STORIES),
    (None, timestamp::TALES),
    (
        None,
        &[(
            "arguments words_choose_and_leave_out_as_in_cargos_harness",
            args::words_choose_and_leave_out_as_in_cargos_harness,
        )],
    ),
];

/// The results of all stories.
#[derive(Default)]
struct Tally {
    passed: AtomicUsize,
    failed: Mutex<Vec<String>>,
    /// The client, the reason and the number of stories.
    skipped: Mutex<Vec<(String, String, usize)>>,
    left_out: AtomicUsize,
}

impl Tally {
    fn skip(&self, who: &str, why: String, stories: usize) {
        let mut skipped = self.skipped.lock().unwrap();
        skipped.push((who.to_owned(), why, stories));
    }
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
    if args.list {
        list(&args);
        return ExitCode::SUCCESS;
    }

    let began = Clock::system().now();
    let tally = Tally::default();
    let (next, jobs) = (AtomicUsize::new(0), jobs());
    thread::scope(|scope| {
        for _ in 0..args.at_once {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::SeqCst)) {
                    job(&args, &tally);
                }
            });
        }
    });
    summary(
        &tally,
        &format!("{:.1?}", Clock::system().now().since(began)),
    )
}

/// Stories that run one after the other, in parallel with other jobs.
type Job = Box<dyn Fn(&Args, &Tally) + Sync>;

fn jobs() -> Vec<Job> {
    let clients = foreign::ALL
        .iter()
        .map(|foreign| -> Job { Box::new(move |args, tally| try_one(foreign, args, tally)) });
    let timestamps = timestamp::FOREIGN.iter().map(|foreign| -> Job {
        Box::new(move |args, tally| timestamp::try_one(*foreign, args, tally))
    });
    let tales = TALES.iter().flat_map(|(needs, tales)| {
        tales.iter().map(move |tale| -> Job {
            Box::new(move |args, tally| tell_tale(*needs, tale, args, tally))
        })
    });
    let quorums = (foreign::ALL.iter()).map(|foreign| -> Job {
        Box::new(move |args, tally| quorum::try_one(foreign, args, tally))
    });
    // The migrations take longest and mostly wait.
    tales
        .chain(quorums)
        .chain(clients)
        .chain(timestamps)
        .collect()
}

fn title(foreign: &Foreign, story: &Story) -> String {
    format!("{} {}", foreign.name, story.title)
}

/// The stories of a client.
fn stories_of(foreign: &'static Foreign) -> impl Iterator<Item = &'static Story> {
    stories::ALL
        .iter()
        .filter(move |story| (story.concerns)(foreign))
}

/// Prints the titles of the chosen stories.
fn list(args: &Args) {
    let of_clients = foreign::ALL
        .iter()
        .flat_map(|foreign| stories_of(foreign).map(|story| title(foreign, story)));
    let tales = TALES.iter().flat_map(|(_, tales)| *tales);
    let titles = of_clients
        .chain(foreign::ALL.iter().flat_map(quorum::titles))
        .chain(timestamp::titles())
        .chain(tales.map(|(title, _)| (*title).to_owned()));
    for title in titles.filter(|title| args.want(title)) {
        println!("{title}: test");
    }
}

/// Runs all stories with one client.
fn try_one(foreign: &'static Foreign, args: &Args, tally: &Tally) {
    let (wanted, left_out): (Vec<_>, Vec<_>) =
        stories_of(foreign).partition(|story| args.want(&title(foreign, story)));
    tally.left_out.fetch_add(left_out.len(), Ordering::SeqCst);
    if wanted.is_empty() {
        return;
    }
    if let Some(why) = foreign.missing() {
        tally.skip(foreign.name, why, wanted.len());
        return;
    }
    for story in wanted {
        tell(&title(foreign, story), tally, || {
            (story.tell)(&Scene::new(foreign))
        });
    }
}

/// Runs a story without a client, which may need a program.
fn tell_tale(needs: Option<&str>, (title, story): &Tale, args: &Args, tally: &Tally) {
    let missing = needs.filter(|program| !foreign::works(program, &["--version"]));
    if !args.want(title) {
        tally.left_out.fetch_add(1, Ordering::SeqCst);
    } else if let Some(program) = missing {
        tally.skip(title, format!("{program} is not installed"), 1);
    } else {
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
    for (who, why, stories) in skipped.iter() {
        println!("SKIPPED {who} ({stories}): {why}");
    }
    println!(
        "\ninterop: {passed} stories passed, {} failed, {} skipped, {left_out} not chosen; {took}",
        failed.len(),
        skipped.iter().map(|(_, _, stories)| stories).sum::<usize>()
    );
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
