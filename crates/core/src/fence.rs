//! Fencing tokens. Each is higher than every one drawn before from the same counter (C2).
//!
//! Conversions to numbers, text, SQL columns and JSON keep the order. They refuse a value that no store can issue.

use std::fmt;
use std::str::FromStr;

use crate::invalid::Invalid;

/// The fencing token of an exclusive lease: a number that only rises for a given lock name.
///
/// Hand it to the resource **at first touch**, reads included; see `Gate` in the library.
/// It fits in 53 bits, so that Lua, JavaScript and JSON carry it exactly.
///
/// With the feature `serde` it is a number, which every reader of JSON carries exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "u64", into = "u64")
)]
pub struct Fence(u64);

impl Fence {
    /// The largest fence: 2^53 - 1.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// A fence that was issued before and then stored elsewhere.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0
    }
}

// Items with `doc(hidden)` are for stores, models and this crate; a program that shows fences does not need them.

/// How many fences are drawn with one grant: 1, or up to 1,024 for a client that hands the lock on inside its process.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(u16);

impl Block {
    /// One fence.
    pub const ONE: Self = Self(1);

    /// The largest block.
    pub const MOST: Self = Self(1_024);

    /// A block of `wanted` fences, or of the nearest possible size.
    pub fn nearest(wanted: u64) -> Self {
        match u16::try_from(wanted) {
            Ok(wanted) => Self(wanted).clamp(Self::ONE, Self::MOST),
            Err(_) => Self::MOST,
        }
    }

    /// The size of the block.
    pub const fn get(self) -> u64 {
        self.0 as u64
    }
}

/// The fences of one hold: consecutive numbers, drawn in one step.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fences {
    /// The fence of the grant, by which others know the holder.
    pub first: Fence,
    /// How many there are.
    pub block: Block,
}

impl Fences {
    /// The last fence of the block.
    pub const fn last(self) -> Fence {
        Fence(self.first.0 + self.block.get() - 1)
    }

    /// Whether `fence` is in the block.
    pub const fn contains(self, fence: Fence) -> bool {
        self.first.0 <= fence.0 && fence.0 <= self.last().0
    }
}

/// The last fence that a store has drawn, for any name; `None` if it was lost. Each grant draws its fences from here.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Counter(pub Option<Fence>);

/// The fences that a counter accepts from a client that proposes them.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Acceptable {
    /// The lowest first fence.
    pub least: Fence,
    /// The highest first fence.
    pub most: Fence,
}

impl Counter {
    /// Draws a block of fences at `wall_us` microseconds since the Unix epoch.
    ///
    /// Wall time as the floor keeps fences rising when the counter was lost (flush, failover, restart). Counting keeps them
    /// rising when the clock pauses or goes back.
    pub fn draw(&mut self, block: Block, wall_us: u64) -> Fences {
        let next = self.counted().map_or(0, |last| last.0 + 1);
        let first = Fence(next.max(wall_us).min(Self::END + 1));
        let fences = Fences { first, block };
        self.0 = Some(fences.last());
        fences
    }

    /// The fences that this counter accepts: above all that it has counted, and at most `most_us`. A counter without a number
    /// accepts none below `floor_us`, since it may have forgotten the ones before.
    pub fn acceptable(&self, floor_us: u64, most_us: u64) -> Acceptable {
        let least = self.counted().map_or(floor_us, |last| last.0 + 1);
        Acceptable {
            least: Fence(least.min(Self::END + 1)),
            most: Fence(most_us.min(Self::END)),
        }
    }

    /// Counts fences that a client has proposed, if they are acceptable.
    ///
    /// # Errors
    /// The acceptable fences; the counter is unchanged.
    pub fn accept(&mut self, fences: Fences, acceptable: Acceptable) -> Result<(), Acceptable> {
        if fences.first < acceptable.least || fences.first > acceptable.most {
            return Err(acceptable);
        }
        self.0 = self.counted().max(Some(fences.last()));
        Ok(())
    }

    /// Whether it was lost, or was never there.
    pub fn is_lost(&self) -> bool {
        self.counted().is_none()
    }

    /// The highest number that counts. A higher one counts as lost; otherwise two grants would share the last fence.
    const END: u64 = Fence::MAX.0 - Block::MOST.get();

    fn counted(&self) -> Option<Fence> {
        self.0.filter(|last| last.0 <= Self::END)
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The fence of this number, as it was read from `input`.
fn checked(number: Option<u64>, input: &dyn fmt::Display) -> Result<Fence, Invalid> {
    let fence = number.map(Fence::new).filter(|fence| *fence <= Fence::MAX);
    fence.ok_or_else(|| {
        let why = "must be a whole number from 0 to 9007199254740991 (2^53 - 1)";
        Invalid::new("fence", &input.to_string(), why)
    })
}

impl From<Fence> for u64 {
    fn from(fence: Fence) -> Self {
        fence.get()
    }
}

/// For a `BIGINT` column. Every fence of a store fits; a larger value given to [`Fence::new`] becomes `i64::MAX`.
impl From<Fence> for i64 {
    fn from(fence: Fence) -> Self {
        Self::try_from(fence.get()).unwrap_or(Self::MAX)
    }
}

/// Reads back a fence that was stored as a number.
impl TryFrom<u64> for Fence {
    type Error = Invalid;

    fn try_from(value: u64) -> Result<Self, Invalid> {
        checked(Some(value), &value)
    }
}

/// Reads back a fence that was stored in a `BIGINT` column.
impl TryFrom<i64> for Fence {
    type Error = Invalid;

    fn try_from(value: i64) -> Result<Self, Invalid> {
        checked(u64::try_from(value).ok(), &value)
    }
}

/// Reads decimal digits, as [`Fence`] is displayed: no sign, no spaces.
impl FromStr for Fence {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        checked(text.parse().ok().filter(|_| digits), &text)
    }
}

#[cfg(feature = "rusqlite")]
mod sql {
    use rusqlite::ToSql;
    use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};

    use crate::fence::Fence;

    /// An `INTEGER`.
    impl ToSql for Fence {
        fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
            Ok(ToSqlOutput::from(i64::from(*self)))
        }
    }

    impl FromSql for Fence {
        fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
            let number = value.as_i64()?;
            Self::try_from(number).map_err(|_| FromSqlError::OutOfRange(number))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fence_rises_when_clock_pauses_or_counter_is_lost() {
        let mut counter = Counter::default();
        let mut draw = |wanted, wall_us| counter.draw(Block::nearest(wanted), wall_us);
        let first = draw(1, 1_000);
        let second = draw(64, 1_000);
        let third = draw(1, 5);
        assert_eq!(
            (first.first.get(), second.first.get(), third.first.get()),
            (1_000, 1_001, 1_065)
        );
        assert_eq!(second.last().get(), 1_064);
        assert!(second.contains(second.last()) && !second.contains(third.first));
        let after_loss = Counter::default().draw(Block::ONE, 2_000);
        assert!(after_loss.first > third.last());
    }

    #[test]
    fn number_no_store_counted_is_taken_for_lost() {
        for near_the_end in [Fence::MAX, Fence::new(Fence::MAX.get() - 1_023)] {
            let mut counter = Counter(Some(near_the_end));
            assert_eq!(counter.draw(Block::MOST, 7).first.get(), 7);
        }
        let mut counter = Counter::default();
        assert_eq!(counter.draw(Block::MOST, u64::MAX).last(), Fence::MAX);
    }

    #[test]
    fn a_block_has_from_one_to_1_024_fences() {
        let sizes = [0, 1, 17, 1_024, 1_025, u64::MAX].map(|wanted| Block::nearest(wanted).get());
        assert_eq!(sizes, [1, 1, 17, 1_024, 1_024, 1_024]);
    }

    #[test]
    fn a_counter_accepts_what_is_within_its_bounds() {
        let block = Block::nearest(4);
        let proposed = |first| Fences {
            first: Fence::new(first),
            block,
        };
        let mut counter = Counter::default();
        let accept = |counter: &mut Counter, first| {
            let acceptable = counter.acceptable(1_000, 2_000);
            let accepted = counter.accept(proposed(first), acceptable);
            assert_eq!(accepted.err(), accepted.err().map(|_| acceptable));
            accepted.is_ok()
        };
        assert!(counter.is_lost());
        assert!(!accept(&mut counter, 999) && !accept(&mut counter, 2_001));
        assert!(accept(&mut counter, 1_000));
        assert!(!counter.is_lost());
        assert!(!accept(&mut counter, 1_003));
        assert!(accept(&mut counter, 2_000));
        assert_eq!(counter.0, Some(Fence::new(2_003)));
        let [least, most] = [1_500, 2_500].map(Fence::new);
        let of_readers = Acceptable { least, most };
        assert!(counter.accept(proposed(1_600), of_readers).is_ok());
        assert_eq!(counter.0, Some(Fence::new(2_003)), "it never falls");
    }

    #[test]
    fn a_counter_at_its_end_accepts_nothing_more() {
        let bounds = Counter(Some(Fence(Counter::END))).acceptable(0, u64::MAX);
        assert_eq!(bounds.least.get(), Counter::END + 1);
        assert_eq!(bounds.most.get(), Counter::END);
        let forgotten = Counter::default().acceptable(u64::MAX, u64::MAX);
        assert_eq!(forgotten, bounds);
    }

    #[test]
    fn goes_to_numbers_and_text_and_back() {
        for number in [0, 1, 1_795_295_880_544_000, Fence::MAX.get()] {
            let fence = Fence::new(number);
            assert_eq!(Fence::try_from(u64::from(fence)), Ok(fence));
            assert_eq!(Fence::try_from(i64::from(fence)), Ok(fence));
            assert_eq!(fence.to_string().parse(), Ok(fence));
        }
    }

    #[test]
    fn fence_no_store_can_issue_is_refused() {
        let beyond = Fence::MAX.get() + 1;
        for refused in [
            Fence::try_from(beyond),
            Fence::try_from(u64::MAX),
            Fence::try_from(beyond.cast_signed()),
            Fence::try_from(-1_i64),
            "9007199254740992".parse(),
            "".parse(),
            "+1".parse(),
            "-1".parse(),
            " 1".parse(),
            "1.0".parse(),
            "99999999999999999999".parse(),
        ] {
            let said = refused.unwrap_err().to_string();
            assert!(
                said.starts_with("invalid fence \"") && said.contains("2^53 - 1"),
                "{said}"
            );
        }
    }

    #[test]
    fn the_order_survives_also_where_the_number_does_not_fit() {
        let [low, high] = [Fence::MAX, Fence::new(u64::MAX)].map(i64::from);
        assert!(low < high);
    }

    #[cfg(feature = "serde")]
    #[test]
    fn is_a_number_in_json() {
        let fence = Fence::MAX;
        let text = serde_json::to_string(&fence).unwrap();
        assert_eq!(text, "9007199254740991");
        assert_eq!(serde_json::from_str::<Fence>(&text).unwrap(), fence);
        for bad in ["9007199254740992", "-1", "1.5", "\"1\"", "null"] {
            serde_json::from_str::<Fence>(bad).unwrap_err();
        }
    }

    #[cfg(feature = "rusqlite")]
    #[test]
    fn is_an_integer_in_sql() {
        let database = rusqlite::Connection::open_in_memory().unwrap();
        let ask = |fence: Fence| {
            database.query_row("SELECT ?1, typeof(?1)", [fence], |row| {
                Ok((row.get::<_, Fence>(0)?, row.get::<_, String>(1)?))
            })
        };
        assert_eq!(ask(Fence::MAX), Ok((Fence::MAX, "integer".to_owned())));
        let refused = |sql| {
            database
                .query_row(sql, [], |row| row.get::<_, Fence>(0))
                .unwrap_err()
        };
        for sql in ["SELECT -1", "SELECT 9007199254740992", "SELECT 'one'"] {
            refused(sql);
        }
    }
}
