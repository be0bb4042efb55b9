//! Parsers for durations, TTLs and sizes on the command line and in settings.

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
    // The messages of humantime are about byte positions.
    humantime::parse_duration(text).map_err(|_| WRITE.to_owned())
}

/// Parses the TTL of a lease.
pub(crate) fn ttl(text: &str) -> Result<Duration, String> {
    // The library validates it before the connection is made.
    Ttl::new(duration(text)?)
        .map(Ttl::get)
        .map_err(|invalid| invalid.why.into_owned())
}

/// Parses the time limit of a request to a store.
pub(crate) fn request_timeout(text: &str) -> Result<Duration, String> {
    let limit = duration(text)?;
    if !(Duration::from_millis(10)..=Duration::from_secs(60)).contains(&limit) {
        return Err("must be from 10ms to 60s".into());
    }
    Ok(limit)
}

/// Parses a total time of holding, which may exceed the maximal TTL.
pub(crate) fn hold(text: &str) -> Result<Duration, String> {
    let hold = duration(text)?;
    if hold < Ttl::MIN {
        return Err(format!("must be at least {:?}", Ttl::MIN));
    }
    Ok(hold)
}

/// `512`, `64k`, `16MiB`: bytes, in powers of 1024.
#[cfg(feature = "cache")]
pub(crate) fn size(text: &str) -> Result<usize, String> {
    const WRITE: &str = "write a number of bytes, or 64KiB, 16MiB, 1GiB";
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start().to_ascii_lowercase();
    let power = match unit.trim_end_matches("ib").trim_end_matches('b') {
        "" if !unit.starts_with('i') => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        _ => return Err(WRITE.into()),
    };
    let number: usize = number.parse().map_err(|_| WRITE.to_owned())?;
    let bytes = number.checked_mul(1 << (10 * power));
    bytes.ok_or_else(|| "is too much".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "cache")]
    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("64k", 64 << 10),
            ("64KB", 64 << 10),
            ("16 MiB", 16 << 20),
            ("1g", 1 << 30),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "k",
            "-1",
            "1.5m",
            "1x",
            "1 ib",
            "99999999999999999999",
            "18446744073709551615k",
        ] {
            size(text).unwrap_err();
        }
    }

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
