//! Conversions of a fence: numbers, text, SQL columns, JSON. They keep the order, and refuse a value that no store can issue.

use std::str::FromStr;

use crate::fence::Fence;
use crate::invalid::Invalid;

/// The reason why a number or a text is no fence.
const WHY: &str = "must be a whole number from 0 to 9007199254740991 (2^53 - 1)";

fn refused(input: &str) -> Invalid {
    Invalid::new("fence", input, WHY)
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
        if value > Self::MAX.get() {
            return Err(refused(&value.to_string()));
        }
        Ok(Self::new(value))
    }
}

/// Reads back a fence that was stored in a `BIGINT` column.
impl TryFrom<i64> for Fence {
    type Error = Invalid;

    fn try_from(value: i64) -> Result<Self, Invalid> {
        let number = u64::try_from(value).ok();
        number
            .and_then(|number| Self::try_from(number).ok())
            .ok_or_else(|| refused(&value.to_string()))
    }
}

/// Reads decimal digits, as [`Fence`] is displayed: no sign, no spaces.
impl FromStr for Fence {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| text.parse::<u64>().ok()).flatten();
        number
            .and_then(|number| Self::try_from(number).ok())
            .ok_or_else(|| refused(text))
    }
}

#[cfg(feature = "serde")]
mod json {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::fence::Fence;

    /// A number, which every reader of JSON carries exactly.
    impl Serialize for Fence {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_u64(self.get())
        }
    }

    impl<'de> Deserialize<'de> for Fence {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            Self::try_from(u64::deserialize(deserializer)?).map_err(D::Error::custom)
        }
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
