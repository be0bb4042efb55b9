//! Guesses which library wrote a foreign lock. For people only: no decision depends on it.

use std::fmt;

use leasehold_core::timestamp::Unit;

/// The format of another library's lock.
///
/// Only the format is known: two libraries may write the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ForeignFormat {
    /// A hash: Redisson keeps one field for each thread that holds the lock, `<uuid>:<thread>`.
    Redisson,
    /// A sorted set: Symfony Lock.
    Symfony,
    /// A text with the time and the host: `ShedLock`'s `ADDED:<time>@<host>`.
    ShedLock,
    /// A UUID of version 1 from the years 2010 to 2110 in 32 hexadecimal digits: redis-py's `Lock`. One in some 2,300 random values of
    /// [`Redlock`](Self::Redlock) looks the same.
    RedisPy,
    /// Any other 32 hexadecimal digits: redlock of Node.js, and many others.
    Redlock,
    /// A UUID with dashes: pottery, redis-semaphore, redlock-rb, RedLock.net.
    Uuid,
    /// 18 bytes in base64: python-redis-lock.
    PythonRedisLock,
    /// 16 bytes in base64: redsync.
    Redsync,
    /// 16 bytes in base64 as it is written in URLs: redislock of Go.
    Redislock,
    /// 20 bytes that are no text: rslock.
    Rslock,
    /// A time in seconds or milliseconds: the recipe of `SETNX` and `GETSET`. The module `timestamp` shares keys with it.
    Timestamp,
}

impl ForeignFormat {
    /// The format of a foreign holder ([`HolderIdentity::Foreign`](crate::HolderIdentity)): the type of its key, and its value if that is a string.
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
        self.described().0
    }

    /// The format that the value resembles.
    pub const fn form(self) -> &'static str {
        self.described().1
    }

    const fn described(self) -> (&'static str, &'static str) {
        match self {
            Self::Redisson => ("Redisson", "a hash"),
            Self::Symfony => ("Symfony Lock", "a sorted set"),
            Self::ShedLock => ("ShedLock", "a time and a host"),
            Self::RedisPy => ("redis-py", "a time-based UUID without dashes"),
            Self::Redlock => ("node-redlock", "32 hexadecimal digits"),
            Self::Uuid => ("pottery or redis-semaphore", "a UUID"),
            Self::PythonRedisLock => ("python-redis-lock", "18 bytes in base64"),
            Self::Redsync => ("redsync", "16 bytes in base64"),
            Self::Redislock => ("bsm/redislock", "16 bytes in base64"),
            Self::Rslock => ("rslock", "20 bytes"),
            Self::Timestamp => ("the timestamp protocol", "a time since 1970"),
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
    let base64 = |text: &str, more: &str| {
        text.chars()
            .all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    let is_uuid = || {
        let lengths = text.split('-').map(str::len);
        lengths.eq([8, 4, 4, 4, 12]) && text.split('-').all(hex)
    };
    match text.len() {
        32 if hex(text) => Some(if is_of_a_time(text) {
            ForeignFormat::RedisPy
        } else {
            ForeignFormat::Redlock
        }),
        36 if is_uuid() => Some(ForeignFormat::Uuid),
        24 if text.strip_suffix("==").is_some_and(|all| base64(all, "+/")) => {
            Some(ForeignFormat::Redsync)
        }
        // 24 hexadecimal digits are base64 too, but an id of MongoDB.
        24 if base64(text, "+/") && !hex(text) => Some(ForeignFormat::PythonRedisLock),
        22 if base64(text, "-_") => Some(ForeignFormat::Redislock),
        _ if [Unit::Seconds, Unit::Millis]
            .iter()
            .any(|unit| unit.read(value).is_some()) =>
        {
            Some(ForeignFormat::Timestamp)
        }
        _ if text.starts_with("ADDED:") && text.contains('@') => Some(ForeignFormat::ShedLock),
        _ => None,
    }
}

fn hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether 32 hexadecimal digits are a UUID of version 1 with a time from 2010 to 2110: the upper 12 bits of its time, which
/// follow the digit of the version, count 326 days each from 1582 on.
fn is_of_a_time(digits: &str) -> bool {
    const FROM_2010: u16 = 0x1e0;
    const TO_2110: u16 = 0x24f;
    let of_version_1 = &digits[12..13] == "1" && "89abAB".contains(&digits[16..17]);
    let upper = u16::from_str_radix(&digits[13..16], 16);
    of_version_1 && upper.is_ok_and(|upper| (FROM_2010..=TO_2110).contains(&upper))
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
            // A value that resembles version 1 by chance has a time far from the present.
            (
                "string",
                "d2f1c9a08c3b1fff9d3c0242ac120002",
                Some(F::Redlock),
            ),
            (
                "string",
                "d2f1c9a08c3b10009d3c0242ac120002",
                Some(F::Redlock),
            ),
            // An id of MongoDB.
            ("string", "507f1f77bcf86cd799439011", None),
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
                "pC9zV1n4+Qx2rL0k/7TgYb3e",
                Some(F::PythonRedisLock),
            ),
            ("string", "pC9zV1n4-Qx2rL0k/7TgYb3e", None),
            (
                "string",
                "ADDED:2026-11-21T20:57:11.123Z@web-3",
                Some(F::ShedLock),
            ),
            ("string", "ADDED:by hand", None),
            ("string", "1795295880", Some(F::Timestamp)),
            ("string", "1795295880.5", Some(F::Timestamp)),
            ("string", "1795295880123", Some(F::Timestamp)),
            ("string", "17952958801234567", None),
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
