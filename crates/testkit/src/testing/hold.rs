//! The command at which a connection through the proxy stops until the test lets it go on.

/// What is held, or will be.
#[derive(Debug, Default)]
pub(crate) enum Hold {
    #[default]
    Nothing,
    /// The next command that begins so.
    At(CommandName),
    /// The bytes after the next command that begins so.
    After(CommandName),
    /// All bytes of this connection from here on.
    From(usize),
    /// This connection, which has sent a command that waits.
    Holding(usize),
}

/// A command's name, as the protocol writes it.
#[derive(Debug)]
pub(crate) struct CommandName(Vec<u8>);

impl CommandName {
    fn new(name: &str) -> Self {
        Self(format!("\r\n${}\r\n{name}\r\n", name.len()).into_bytes())
    }

    /// Whether these bytes contain the command. Its name follows the number of its words (`*2`), which an argument never does.
    fn is_in(&self, bytes: &[u8]) -> bool {
        bytes.windows(self.0.len()).enumerate().any(|(at, window)| {
            let digits = bytes[..at]
                .iter()
                .rev()
                .take_while(|byte| byte.is_ascii_digit());
            let digits = digits.count();
            window.eq_ignore_ascii_case(&self.0)
                && digits > 0
                && bytes[..at - digits].ends_with(b"*")
        })
    }
}

impl Hold {
    pub(crate) fn at(command: &str) -> Self {
        Self::At(CommandName::new(command))
    }

    pub(crate) fn after(command: &str) -> Self {
        Self::After(CommandName::new(command))
    }

    /// Whether these next bytes of this client have to wait.
    pub(crate) fn holds(&mut self, connection: usize, bytes: &[u8]) -> bool {
        let begins = match self {
            Self::At(command) => command.is_in(bytes),
            Self::From(held) | Self::Holding(held) => *held == connection,
            Self::Nothing | Self::After(_) => false,
        };
        if begins {
            *self = Self::Holding(connection);
        }
        begins
    }

    /// These bytes of this client are on their way to the server.
    pub(crate) fn forwarded(&mut self, connection: usize, bytes: &[u8]) {
        if let Self::After(command) = self
            && command.is_in(bytes)
        {
            *self = Self::From(connection);
        }
    }

    pub(crate) fn is_holding(&self) -> bool {
        matches!(self, Self::Holding(_))
    }

    /// The connections have been cut, with the bytes that waited there.
    pub(crate) fn cut(&mut self) {
        if matches!(self, Self::From(_) | Self::Holding(_)) {
            *self = Self::Nothing;
        }
    }
}
