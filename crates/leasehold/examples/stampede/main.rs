//! Four processes read a cached page that expires, with the cache guard and without. The example counts the renderings and measures the
//! reads.
//!
//! `cargo run -p leasehold --example stampede`, or with `-- --url redis://127.0.0.1:6379/` on a server.

mod picture;
mod process;
mod site;

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::picture::Act;
use crate::site::Site;

const PROCESSES: usize = 4;
/// The duration of each half of the picture.
const LENGTH: Duration = Duration::from_millis(2600);
/// The interval at which the program counts the renderings.
const TICK: Duration = Duration::from_millis(50);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let url = match words[..] {
        // This process is one of the four that `play` starts.
        ["reader", how, folder, url] => return process::run(how == "guarded", folder, url),
        [] => None,
        ["--url", url] => Some(url),
        _ => {
            eprintln!(
                "usage: cargo run -p leasehold --example stampede [-- --url redis://127.0.0.1:6379/]"
            );
            std::process::exit(64);
        }
    };
    // A unique name, since other programs may use the server too.
    let folder = std::env::temp_dir().join(format!("leasehold-stampede-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let local = format!("local:{}", folder.join("store").display());
    let played =
        ["plain", "guarded"].map(|how| play(how, &Site::new(&folder), url.unwrap_or(&local)));
    std::fs::remove_dir_all(&folder)?;
    let [plain, guarded] = played;
    println!("{}", picture::draw(&plain?, &guarded?));
    Ok(())
}

/// Four processes read the page for a while. Returns the renderings over time and the duration of each read.
fn play(how: &str, site: &Site, url: &str) -> Result<Act, Box<dyn Error>> {
    site.forget()?;
    let start = |_| {
        Command::new(std::env::current_exe()?)
            .args(["reader", how])
            .arg(site.folder())
            .arg(url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
    };
    let mut readers = (0..PROCESSES)
        .map(start)
        .collect::<Result<Vec<Child>, _>>()?;
    let mut lines = Vec::new();
    for reader in &mut readers {
        let mut said = BufReader::new(reader.stdout.take().ok_or("it is piped")?);
        // Waits until the reader has connected.
        said.read_line(&mut String::new())?;
        lines.push(said);
    }
    for reader in &mut readers {
        // A reader starts when it gets this line. Its input ends with this program, even after a crash.
        writeln!(reader.stdin.as_mut().ok_or("it is piped")?, "go")?;
    }
    let mut counts = vec![0];
    while counts.len() <= ticks() {
        std::thread::sleep(TICK);
        counts.push(site.renders());
    }
    let mut took_us = Vec::new();
    for (mut said, mut reader) in lines.into_iter().zip(readers) {
        let mut line = String::new();
        said.read_line(&mut line)?;
        took_us.extend(
            line.split_whitespace()
                .filter_map(|word| word.parse::<u64>().ok()),
        );
        reader.wait()?;
    }
    took_us.sort_unstable();
    let by_tick = counts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    Ok(Act { by_tick, took_us })
}

/// The number of ticks in one half.
fn ticks() -> usize {
    usize::try_from(LENGTH.as_millis() / TICK.as_millis()).unwrap_or(1)
}
