//! A worker's connection to the resource. Each request belongs to an acquisition.

use std::path::Path;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

/// A connection to the resource.
#[derive(Debug)]
pub(super) struct Visit {
    proc: u64,
    stream: BufReader<UnixStream>,
}

impl Visit {
    pub(super) async fn begin(socket: &Path, proc: u64) -> Result<Self, String> {
        let stream = UnixStream::connect(socket).await;
        let stream = stream.map_err(|error| format!("the resource does not answer: {error}"))?;
        Ok(Self {
            proc,
            stream: BufReader::new(stream),
        })
    }

    /// Reads. Returns the version, unless the fence is refused.
    pub(super) async fn read(
        &mut self,
        lock: &str,
        fence: Option<u64>,
    ) -> Result<Option<u64>, String> {
        let (proc, fence) = (self.proc, shown(fence));
        self.ask(format!("read {lock} {proc} {fence}\n")).await
    }

    /// Writes. Returns the new version, unless the fence is refused.
    pub(super) async fn write(
        &mut self,
        lock: &str,
        fence: Option<u64>,
        base: u64,
    ) -> Result<Option<u64>, String> {
        let (proc, fence) = (self.proc, shown(fence));
        self.ask(format!("write {lock} {proc} {fence} {base}\n"))
            .await
    }

    async fn ask(&mut self, line: String) -> Result<Option<u64>, String> {
        let mut answer = String::new();
        let answered = async {
            self.stream.get_mut().write_all(line.as_bytes()).await?;
            self.stream.read_line(&mut answer).await
        };
        answered
            .await
            .map_err(|error| format!("the resource: {error}"))?;
        let parsed = answer
            .trim_end()
            .split_once(' ')
            .map(|(word, version)| (word, version.parse()));
        match parsed {
            Some(("ok", Ok(version))) => Ok(Some(version)),
            Some(("stale", Ok(_))) => Ok(None),
            _ => Err(format!("the resource answered {answer:?}")),
        }
    }
}

fn shown(fence: Option<u64>) -> String {
    fence.map_or_else(|| "-".to_owned(), |fence| fence.to_string())
}
