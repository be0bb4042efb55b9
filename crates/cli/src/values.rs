//! Values as people write them. Must never guess what was meant.

use std::time::Duration;

use leasehold::Ttl;

const WRITE: &str = "write 30s, 5m, 2h, or a number of seconds";

/// `5s`, `1h 30m`, `0.5` (seconds).
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        let seconds = text.parse().map_err(|_| WRITE.to_owned())?;
        return Duration::try_from_secs_f64(seconds).map_err(|_| "is too long".to_owned());
    }
    // What humantime says of it is about the bytes of the text.
    humantime::parse_duration(text).map_err(|_| WRITE.to_owned())
}

/// The TTL of a lease.
pub(crate) fn ttl(text: &str) -> Result<Duration, String> {
    // The library judges it, before there is a connection.
    Ttl::new(duration(text)?)
        .map(Ttl::get)
        .map_err(|invalid| invalid.why.into_owned())
}

/// How long a lock may be held in all: not bounded by what one lease may last.
pub(crate) fn hold(text: &str) -> Result<Duration, String> {
    let hold = duration(text)?;
    if hold < Ttl::MIN {
        return Err(format!("must be at least {:?}", Ttl::MIN));
    }
    Ok(hold)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in [
            ("5s", 5_000),
            ("2h", 7_200_000),
            ("7", 7_000),
            ("0.5", 500),
            ("1m 30s", 90_000),
            ("0", 0),
            ("250ms", 250),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(hold("30h"), Ok(Duration::from_secs(30 * 60 * 60)));
        hold("9ms").unwrap_err();
        for text in [
            "",
            "nonsense",
            "5 parsecs",
            "1.2.3",
            "-1",
            "inf",
            &"9".repeat(400),
        ] {
            duration(text).unwrap_err();
        }
    }
}
