//! The page, its slow rendering, and a record of every rendering. The picture counts with this record.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use leasehold::Clock;

/// The time to render the page.
pub(crate) const RENDERING: Duration = Duration::from_millis(200);
/// The time for which a rendering is fresh.
pub(crate) const FRESH: Duration = Duration::from_millis(600);

#[derive(Clone)]
pub(crate) struct Site(PathBuf);

impl Site {
    pub(crate) fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    /// Renders the page. Appends a line with the time to the record, in one write, so that concurrent processes lose no entry.
    pub(crate) async fn render(&self) -> io::Result<String> {
        let record = self.0.join("renders");
        let line = format!("{}\n", micros(Clock::system().wall()));
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(record)?
            .write_all(line.as_bytes())?;
        tokio::time::sleep(RENDERING).await;
        Ok("<h1>hello</h1>".to_owned())
    }

    /// When the renderings began after `begun`.
    pub(crate) fn renders(&self, begun: SystemTime) -> Vec<Duration> {
        let record = fs::read_to_string(self.0.join("renders")).unwrap_or_default();
        let times = record.lines().filter_map(|line| line.parse::<u64>().ok());
        times
            .map(|time| Duration::from_micros(time.saturating_sub(micros(begun))))
            .collect()
    }

    pub(crate) fn forget(&self) -> io::Result<()> {
        for file in ["renders", "page"] {
            match fs::remove_file(self.0.join(file)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// A shared cache without a guard: a reader that finds no fresh page renders it and stores it. The cache is a file here. A `GET`, and
    /// then a `SET` with a time to live, behaves in the same way.
    pub(crate) async fn unguarded(&self) -> io::Result<String> {
        let page = self.0.join("page");
        let age = fs::metadata(&page).and_then(|file| file.modified()).ok();
        let age = age.and_then(|stored| stored.elapsed().ok());
        if age.is_some_and(|age| age < FRESH) {
            return fs::read_to_string(page);
        }
        let text = self.render().await?;
        fs::write(page, &text)?;
        Ok(text)
    }
}

fn micros(time: SystemTime) -> u64 {
    let passed = time.duration_since(SystemTime::UNIX_EPOCH);
    passed.map_or(0, |passed| {
        u64::try_from(passed.as_micros()).unwrap_or(u64::MAX)
    })
}
