//! The servers that a peer uses.

/// Servers on this machine, by their ports.
#[derive(Debug, Clone)]
pub(crate) struct Servers {
    /// One server, or the nodes of a quorum.
    pub(crate) nodes: Vec<u16>,
    /// The server with the number of the counter stories.
    pub(crate) counter: u16,
}

/// One server for everything.
impl From<u16> for Servers {
    fn from(port: u16) -> Self {
        Self {
            nodes: vec![port],
            counter: port,
        }
    }
}

impl Servers {
    /// The arguments for a peer's process: the ports of the nodes with commas, and that of the counter.
    pub(crate) fn args(&self) -> [String; 2] {
        let nodes: Vec<String> = self.nodes.iter().map(u16::to_string).collect();
        [nodes.join(","), self.counter.to_string()]
    }

    /// Reads the arguments.
    pub(crate) fn read(nodes: &str, counter: &str) -> Self {
        Self {
            nodes: nodes.split(',').map(|port| port.parse().unwrap()).collect(),
            counter: counter.parse().unwrap(),
        }
    }

    /// The URL of each node.
    pub(crate) fn urls(&self) -> Vec<String> {
        let url = |port: &u16| format!("redis://127.0.0.1:{port}/");
        self.nodes.iter().map(url).collect()
    }

    /// The URL for Leasehold.
    pub(crate) fn url(&self) -> String {
        if let [url] = &self.urls()[..] {
            return url.clone();
        }
        let hosts = self.nodes.iter().map(|port| format!("127.0.0.1:{port}"));
        format!("redis+quorum://{}/", hosts.collect::<Vec<_>>().join(","))
    }
}
