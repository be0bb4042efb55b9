//! Decodes percent-encoded parts of a URL. Errors never quote them, since they may be secrets.

pub(super) fn text(encoded: &str) -> Result<String, String> {
    String::from_utf8(decoded(encoded)?).map_err(|_| "has a part that is not UTF-8".into())
}

/// Decodes a percent-encoded text to bytes.
pub(super) fn decoded(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let pair = digit().zip(digit());
        let byte = pair.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        bytes.push(byte.ok_or("has a % without two hexadecimal digits; write %25 for it")?);
    }
    Ok(bytes)
}
