//! Whose lock a key may be that is not ours. Must never decide anything: it is a guess, for people.

use std::fmt;

/// What the lock of another program looks like.
///
/// Only the form is known: two libraries may write the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ForeignFormat {
    /// A hash: Redisson keeps one field for each thread that holds the lock, `<uuid>:<thread>`.
    Redisson,
    /// A sorted set: Symfony Lock.
    Symfony,
    /// A text with the time and the host: `ShedLock`'s `ADDED:<time>@<host>`.
    ShedLock,
    /// A UUID of version 1 in 32 hexadecimal digits: redis-py's `Lock`.
    RedisPy,
    /// Any other 32 hexadecimal digits: redlock of Node.js, and many others.
    Redlock,
    /// A UUID with dashes: pottery, redis-semaphore, redlock-rb, RedLock.net.
    Uuid,
    /// 16 bytes in base64: redsync.
    Redsync,
    /// 16 bytes in base64 as it is written in URLs: redislock of Go.
    Redislock,
    /// 20 bytes that are no text: rslock.
    Rslock,
}

impl ForeignFormat {
    /// The format of a foreign holder ([`Who::Foreign`](crate::Who)): the type of its key, and its value if that is a string.
    /// `None` if it looks like none that is known.
    pub fn guess(kind: &str, value: &[u8]) -> Option<Self> {
        match kind {
            "hash" => Some(Self::Redisson),
            "zset" => Some(Self::Symfony),
            "string" => of_string(value),
            _ => None,
        }
    }

    /// The program or library that writes it, or the best known of them.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Redisson => "Redisson",
            Self::Symfony => "Symfony Lock",
            Self::ShedLock => "ShedLock",
            Self::RedisPy => "redis-py",
            Self::Redlock => "node-redlock",
            Self::Uuid => "pottery or redis-semaphore",
            Self::Redsync => "redsync",
            Self::Redislock => "bsm/redislock",
            Self::Rslock => "rslock",
        }
    }

    /// What it looks like.
    pub const fn form(self) -> &'static str {
        match self {
            Self::Redisson => "a hash",
            Self::Symfony => "a sorted set",
            Self::ShedLock => "a time and a host",
            Self::RedisPy => "a time-based UUID without dashes",
            Self::Redlock => "32 hexadecimal digits",
            Self::Uuid => "a UUID",
            Self::Redsync | Self::Redislock => "16 bytes in base64",
            Self::Rslock => "20 bytes",
        }
    }
}

/// The program.
impl fmt::Display for ForeignFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program())
    }
}

fn of_string(value: &[u8]) -> Option<ForeignFormat> {
    let Ok(text) = std::str::from_utf8(value) else {
        return (value.len() == 20).then_some(ForeignFormat::Rslock);
    };
    let hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let base64 = |text: &str, more: &str| {
        text.chars()
            .all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    let is_uuid = || {
        let lengths = text.split('-').map(str::len);
        lengths.eq([8, 4, 4, 4, 12]) && text.split('-').all(hex)
    };
    match text.len() {
        32 if hex(text) => Some(match text.as_bytes() {
            bytes if bytes[12] == b'1' && b"89abAB".contains(&bytes[16]) => ForeignFormat::RedisPy,
            _ => ForeignFormat::Redlock,
        }),
        36 if is_uuid() => Some(ForeignFormat::Uuid),
        24 if text.strip_suffix("==").is_some_and(|all| base64(all, "+/")) => {
            Some(ForeignFormat::Redsync)
        }
        22 if base64(text, "-_") => Some(ForeignFormat::Redislock),
        _ if text.starts_with("ADDED:") && text.contains('@') => Some(ForeignFormat::ShedLock),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_programs_write_is_recognised() {
        use ForeignFormat as F;
        for (kind, value, format) in [
            ("hash", "", Some(F::Redisson)),
            ("zset", "", Some(F::Symfony)),
            ("list", "", None),
            ("stream", "", None),
            (
                "string",
                "d2f1c9a08c3b11ef9d3c0242ac120002",
                Some(F::RedisPy),
            ),
            (
                "string",
                "d2f1c9a08c3b41ef9d3c0242ac120002",
                Some(F::Redlock),
            ),
            (
                "string",
                "00000000000010000000000000000000",
                Some(F::Redlock),
            ),
            ("string", "d2f1c9a08c3b41ef9d3c0242ac12000g", None),
            (
                "string",
                "9b2e6f0a-6f0c-4c52-a5a6-3a2f6f6f0e11",
                Some(F::Uuid),
            ),
            ("string", "9b2e6f0a-6f0c4-c52-a5a6-3a2f6f6f0e11", None),
            ("string", "qL0xv7Yt+3sWkz/9mNcP1g==", Some(F::Redsync)),
            ("string", "qL0xv7Yt+3sWkz/9mNcP1g!=", None),
            ("string", "qL0xv7Yt-3sWkz_9mNcP1g", Some(F::Redislock)),
            (
                "string",
                "ADDED:2026-11-21T20:57:11.123Z@web-3",
                Some(F::ShedLock),
            ),
            ("string", "ADDED:by hand", None),
            ("string", "1", None),
            ("string", "", None),
            ("string", "somebody", None),
            ("string", "\u{e9}", None),
        ] {
            assert_eq!(F::guess(kind, value.as_bytes()), format, "{kind} {value}");
        }
        assert_eq!(F::guess("string", &[0xff; 20]), Some(F::Rslock));
        assert_eq!(F::guess("string", &[0xff; 19]), None);
    }
}
