//! What is cached: a slow source that writes down each read of it, outside of Redis, in one line at the end of a file.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use leasehold_bench::now_ns;

/// How long a value is, in bytes.
const LENGTH: usize = 1000;

/// One reader's way to the source.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) folder: std::sync::Arc<str>,
    pub(crate) key: String,
    pub(crate) takes: Duration,
    pub(crate) fails: bool,
}

impl Source {
    /// Reads it; the value begins with the time at which that began.
    pub(crate) async fn read(self) -> Result<String, String> {
        let begun = self.note("begun");
        tokio::time::sleep(self.takes).await;
        self.note(if self.fails { "failed" } else { "ended" });
        if self.fails {
            return Err("the source is down".to_owned());
        }
        Ok(format!("{begun:<LENGTH$}"))
    }

    fn note(&self, what: &str) -> u64 {
        let now = now_ns();
        let line = format!("{what} {} {} {now}\n", self.key, std::process::id());
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(Path::new(&*self.folder).join("reads"));
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .expect("the record can be written");
        now
    }
}

/// From when on a value must have been read to be true: the beginning of the last invalidation that has ended. 0 if there was none.
pub(crate) struct Floor(Option<File>);

impl Floor {
    pub(crate) fn open(folder: &str) -> Self {
        Self(File::open(Path::new(folder).join("floor")).ok())
    }

    pub(crate) fn now(&self) -> u64 {
        let mut bytes = [0; 8];
        match self
            .0
            .as_ref()
            .map(|file| file.read_exact_at(&mut bytes, 0))
        {
            Some(Ok(())) => u64::from_le_bytes(bytes),
            _ => 0,
        }
    }
}

/// When the read that brought this value began.
pub(crate) fn begun(value: &str) -> u64 {
    value.trim_end().parse().expect("a value of the source")
}
