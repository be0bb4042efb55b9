//! A value under its key: its format, its version, and when it is fresh.
//!
//! The text is a header of fixed width, then the value unchanged. Any language can cut it at the first line feed:
//!
//! ```text
//! lhc1 f 1795316158604832 0001795316158850 0001795316218850 00000246 j\n
//! ```
//!
//! | at | | |
//! |--:|---|---|
//! | 0 | `lhc1` | the format |
//! | 5 | `f`, `i` | fresh until its soft expiry, or invalidated |
//! | 7 | 16 digits | its version: when its load began, in microseconds since 1970, or a little more |
//! | 24 | 16 digits | when it was stored, in milliseconds on the store's expiry clock (in Redis: since 1970) |
//! | 41 | 16 digits | its soft expiry, on the same clock |
//! | 58 | 8 digits | how long it took to load, in milliseconds |
//! | 67 | a letter | how the value is written: `j` JSON, `m` MessagePack, `r` as it is |

use std::sync::Arc;
use std::time::Duration;

use crate::time::Now;

/// The bytes of a value, without the header; shared, since one load serves many callers.
pub type Body = Arc<[u8]>;

/// The length of the header, including its line feed.
pub const HEADER_BYTES: usize = 69;

const MAGIC: &[u8] = b"lhc1 ";

/// How far the store's clock may be behind the time of storing. Beyond that, the clock was set back, the age of the value is
/// unknown, and the value is stale.
const BEHIND_MS: u64 = 1_000;

/// The last part of the fresh time in which a value may be refreshed early: one in so many.
const WINDOW: u64 = 5;

/// The largest number with 16 digits, and the largest load time.
const MOST: u64 = 9_999_999_999_999_999;
const MOST_LOAD: u64 = 99_999_999;

/// The number of a load or of an invalidation of an entry; it only rises (K2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(u64);

impl Version {
    /// The largest one: 2^53 - 1, which Lua and JavaScript carry exactly.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// A version that was read back from a store.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next version after `last`, at `wall_us` microseconds since 1970. As for fences, wall time as the floor keeps them
    /// rising when the last one was lost, and counting does when the clock pauses or goes back.
    pub fn after(last: Self, wall_us: u64) -> Self {
        // A number near the maximum was not given out by a store: it counts as lost.
        let by_count = if last < Self::MAX { last.0 + 1 } else { 0 };
        Self(by_count.max(wall_us).min(Self::MAX.0))
    }
}

/// The format of a value. This crate does not read values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// JSON.
    Json,
    /// `MessagePack`, with the names of fields.
    MessagePack,
    /// The loader's bytes, unchanged.
    Raw,
}

impl Format {
    /// The letter in the header.
    pub const fn letter(self) -> char {
        match self {
            Self::Json => 'j',
            Self::MessagePack => 'm',
            Self::Raw => 'r',
        }
    }

    fn read(letter: u8) -> Option<Self> {
        [Self::Json, Self::MessagePack, Self::Raw]
            .into_iter()
            .find(|format| format.letter() == char::from(letter))
    }
}

/// The header of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// It was invalidated, or its load was overtaken by an invalidation: it is stale at any time.
    pub invalidated: bool,
    /// The version of its load.
    pub version: Version,
    /// When it was stored, in milliseconds on the store's expiry clock.
    pub stored_ms: u64,
    /// Its soft expiry, on the same clock: from here on it is stale.
    pub soft_ms: u64,
    /// How long it took to load, in milliseconds.
    pub load_ms: u64,
    /// The format of the value.
    pub format: Format,
}

/// Whether a value may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It may be used.
    Fresh,
    /// A newer value should be loaded; this one may be used meanwhile.
    Stale,
}

impl Header {
    /// Whether it may be used at `now_ms`, on the store's expiry clock.
    pub const fn standing(&self, now_ms: u64) -> Standing {
        let from_future = now_ms.saturating_add(BEHIND_MS) < self.stored_ms;
        if self.invalidated || from_future || now_ms >= self.soft_ms {
            Standing::Stale
        } else {
            Standing::Fresh
        }
    }

    /// The time since it was stored.
    pub const fn age(&self, now_ms: u64) -> Duration {
        Duration::from_millis(now_ms.saturating_sub(self.stored_ms))
    }

    /// Whether a reader that finds the value fresh should refresh it already, decided by `random` from 0 to 1.
    ///
    /// This is `XFetch` (Vattani, Chierichetti, Lowenstein: "Optimal Probabilistic Cache Stampede Prevention", VLDB 2015). The
    /// longer a load takes, and the nearer the expiry, the likelier the refresh. `eagerness` is its beta: 1 by default, 0 for
    /// never. Refreshes begin only in the last fifth of the fresh time; with many readers, one of them would otherwise refresh
    /// all the time.
    pub fn is_due_early(&self, now_ms: u64, random: f64, eagerness: f64) -> bool {
        let left = self.soft_ms.saturating_sub(now_ms);
        let span = self.soft_ms.saturating_sub(self.stored_ms);
        if left > span / WINDOW || eagerness <= 0.0 {
            return false;
        }
        let draw = -random.clamp(f64::MIN_POSITIVE, 1.0).ln();
        float(self.load_ms) * eagerness * draw >= float(left)
    }

    /// The header as text.
    pub fn line(&self) -> String {
        format!(
            "lhc1 {} {:016} {:016} {:016} {:08} {}\n",
            if self.invalidated { 'i' } else { 'f' },
            self.version.get().min(MOST),
            self.stored_ms.min(MOST),
            self.soft_ms.min(MOST),
            self.load_ms.min(MOST_LOAD),
            self.format.letter(),
        )
    }

    /// Parses the header at the beginning of `text`; `None` if it is no entry.
    pub fn read(text: &[u8]) -> Option<Self> {
        let line = text.get(..HEADER_BYTES)?;
        let spaces = [6, 23, 40, 57, 66].iter().all(|at| line[*at] == b' ');
        if !line.starts_with(MAGIC) || !spaces || line[HEADER_BYTES - 1] != b'\n' {
            return None;
        }
        let number = |from: usize, to: usize| {
            let digits = line.get(from..to)?;
            let all_digits = digits.iter().all(u8::is_ascii_digit);
            let text = std::str::from_utf8(digits).ok().filter(|_| all_digits)?;
            text.parse::<u64>().ok()
        };
        // No store gives out a larger version, and scripts could not tell it from its neighbours.
        let version =
            Some(Version::new(number(7, 23)?)).filter(|version| *version <= Version::MAX)?;
        Some(Self {
            invalidated: match line[5] {
                b'f' => false,
                b'i' => true,
                _ => return None,
            },
            version,
            stored_ms: number(24, 40)?,
            soft_ms: number(41, 57)?,
            load_ms: number(58, 66)?,
            format: Format::read(line[67])?,
        })
    }
}

/// A value with its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The header.
    pub header: Header,
    /// The value.
    pub body: Body,
}

impl Value {
    /// Parses the content of a key; `None` if it is no entry.
    pub fn read(text: &[u8]) -> Option<Self> {
        let header = Header::read(text)?;
        let body = text.get(HEADER_BYTES..)?.into();
        Some(Self { header, body })
    }

    /// The content of the key.
    pub fn text(&self) -> Vec<u8> {
        let mut text = self.header.line().into_bytes();
        text.extend_from_slice(&self.body);
        text
    }

    /// Whether it may be used now.
    pub const fn standing(&self, now: Now) -> Standing {
        self.header.standing(now.millis())
    }
}

/// Milliseconds since 1970 are far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "a draw need not be exact")]
const fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE: &str = "lhc1 f 1795316158604832 0001795316158850 0001795316218850 00000246 j\n";

    fn header() -> Header {
        Header {
            invalidated: false,
            version: Version::new(1_795_316_158_604_832),
            stored_ms: 1_795_316_158_850,
            soft_ms: 1_795_316_218_850,
            load_ms: 246,
            format: Format::Json,
        }
    }

    #[test]
    fn the_line_of_the_documentation_is_the_one_that_is_written() {
        assert_eq!(header().line(), LINE);
        assert_eq!(LINE.len(), HEADER_BYTES);
        let text = [LINE.as_bytes(), b"{\"a\":\n1}"].concat();
        let value = Value::read(&text).unwrap();
        assert_eq!(
            (value.header, &*value.body),
            (header(), &b"{\"a\":\n1}"[..])
        );
        assert_eq!(value.text(), text);
    }

    #[test]
    fn other_formats_are_no_entry() {
        for (at, byte) in [
            (0, b'L'),
            (3, b'2'),
            (5, b'x'),
            (6, b'_'),
            (7, b'-'),
            (22, b' '),
            (40, b'1'),
            (60, b'+'),
            (67, b'q'),
            (68, b' '),
        ] {
            let mut line = LINE.as_bytes().to_vec();
            line[at] = byte;
            assert_eq!(Header::read(&line), None, "{at}");
        }
        for short in ["", "lhc1", &LINE[..68], "lh1.0000", "{\"a\":1}"] {
            assert_eq!(Value::read(short.as_bytes()), None, "{short}");
        }
    }

    #[test]
    fn version_never_given_out_is_no_entry() {
        let line = |version: &str| LINE.replace("1795316158604832", version);
        assert!(Header::read(line("9007199254740991").as_bytes()).is_some());
        assert_eq!(Header::read(line("9007199254740992").as_bytes()), None);
    }

    #[test]
    fn largest_version_counts_as_lost() {
        let after = |last| Version::after(Version::new(last), 7).get();
        let most = Version::MAX.get();
        assert_eq!([6, 7, most - 1, most].map(after), [7, 8, most, 7]);
    }

    #[test]
    fn fresh_until_soft_expiry_and_stale_if_the_clock_went_back() {
        let header = header();
        let standing = |now_ms| header.standing(now_ms);
        assert_eq!(standing(header.stored_ms), Standing::Fresh);
        assert_eq!(standing(header.soft_ms - 1), Standing::Fresh);
        assert_eq!(standing(header.soft_ms), Standing::Stale);
        assert_eq!(standing(header.stored_ms - 1_000), Standing::Fresh);
        assert_eq!(standing(header.stored_ms - 1_001), Standing::Stale);
        let invalidated = Header {
            invalidated: true,
            ..header
        };
        assert_eq!(invalidated.standing(header.stored_ms), Standing::Stale);
    }

    #[test]
    fn the_longer_the_load_and_the_nearer_the_end_the_likelier() {
        let header = Header {
            invalidated: false,
            version: Version::new(7),
            stored_ms: 10_000,
            soft_ms: 20_000,
            load_ms: 500,
            format: Format::Json,
        };
        // e^-2: two load times ahead.
        let random = 0.13;
        assert!(!header.is_due_early(18_900, random, 1.0));
        assert!(header.is_due_early(19_000, random, 1.0));
        assert!(!header.is_due_early(19_000, random, 0.0));
        assert!(header.is_due_early(18_000, random, 3.0));
        // Even with high eagerness, not before the last fifth.
        assert!(!header.is_due_early(17_999, 0.0, 100.0));
        assert!(header.is_due_early(18_000, 0.0, 100.0));
        assert!(header.is_due_early(20_000, 1.0, 1.0));
    }

    proptest! {
        #[test]
        fn every_header_is_read_back(
            invalidated: bool, version in 0..=Version::MAX.get(), stored_ms in 0..=MOST, soft_ms in 0..=MOST, load_ms in 0..=MOST_LOAD,
        ) {
            for format in [Format::Json, Format::MessagePack, Format::Raw] {
                let header =
                    Header { invalidated, version: Version::new(version), stored_ms, soft_ms, load_ms, format };
                prop_assert_eq!(Header::read(header.line().as_bytes()), Some(header));
            }
        }
    }
}
