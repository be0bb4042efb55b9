//! Four processes read a cached page that expires, with the cache guard and without. The example counts the renderings and measures the
//! reads.
//!
//! `cargo run -p leasehold-cache --example stampede`, or with `-- --url redis://127.0.0.1:6379/` on a server.

mod picture;
mod process;
mod site;

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::Clock;

use crate::picture::Act;
use crate::site::Site;

const PROCESSES: usize = 4;
/// The duration of each half of the picture.
const LENGTH: Duration = Duration::from_millis(2600);
/// The interval for which the picture counts the renderings.
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
                "usage: cargo run -p leasehold-cache --example stampede [-- --url redis://127.0.0.1:6379/]"
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
    let begun = Clock::system().wall();
    for reader in &mut readers {
        // A reader starts when it gets this line. Its input ends with this program, even after a crash.
        writeln!(reader.stdin.as_mut().ok_or("it is piped")?, "go")?;
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
    // Counted by the time of each rendering: it does not matter when this program looks.
    let tick = |moment: Duration| usize::try_from(moment.as_micros() / TICK.as_micros());
    let mut by_tick = vec![0; tick(LENGTH)?];
    for moment in site.renders(begun) {
        let tick = tick(moment)?;
        by_tick.resize(by_tick.len().max(tick + 1), 0);
        by_tick[tick] += 1;
    }
    Ok(Act { by_tick, took_us })
}
