//! Encodings of values. A value in another format is not read.

use std::error::Error as StdError;

use leasehold_core::cache::{Format, Value};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Encodes and decodes values of type `V`. The default codec of a cache is [`Json`].
///
/// Your own codec is a type that implements [`Encoding`] and `Codec`. The header of an entry names one of three formats. All encodings
/// but JSON and `MessagePack` are [`Format::Raw`], so use different keys for different raw encodings.
///
/// ```
/// use std::error::Error;
/// use leasehold::Client;
/// use leasehold::cache::{Codec, Format, Encoding};
///
/// /// Numbers as eight bytes.
/// struct BigEndian;
///
/// impl Encoding for BigEndian {
///     const FORMAT: Format = Format::Raw;
/// }
///
/// impl Codec<u64> for BigEndian {
///     fn encode(value: &u64) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
///         Ok(value.to_be_bytes().to_vec())
///     }
///
///     fn decode(bytes: &[u8]) -> Result<u64, Box<dyn Error + Send + Sync>> {
///         Ok(u64::from_be_bytes(bytes.try_into()?))
///     }
/// }
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn Error>> {
/// # let client = Client::embedded()?;
/// let counts = client.cache().codec::<BigEndian>();
/// let load = || async { Ok::<_, std::io::Error>(7_u64) };
/// assert_eq!(*counts.get_or_refresh("visits", load).await?, 7);
/// # client.close().await; Ok(()) }
/// ```
pub trait Codec<V>: Encoding {
    /// Encodes a value.
    ///
    /// # Errors
    /// If the format cannot express the value.
    fn encode(value: &V) -> Result<Vec<u8>, Box<dyn StdError + Send + Sync>>;

    /// Decodes a value.
    ///
    /// # Errors
    /// If the bytes are not a value of this type.
    fn decode(bytes: &[u8]) -> Result<V, Box<dyn StdError + Send + Sync>>;
}

/// The format of a [`Codec`].
pub trait Encoding: Send + Sync + 'static {
    /// The format in the header of an entry.
    const FORMAT: Format;

    /// Whether the codec can read entries of `format`.
    #[must_use]
    fn reads(format: Format) -> bool {
        format == Self::FORMAT
    }
}

/// Decodes a stored value, or says why that failed.
pub(super) fn read<V, C: Codec<V>>(value: &Value) -> Result<V, String> {
    let format = value.header.format;
    if !C::reads(format) {
        return Err(format!(
            "is written as {format:?}, and {:?} was asked for",
            C::FORMAT
        ));
    }
    C::decode(&value.body).map_err(|error| format!("cannot be read as this type: {error}"))
}

/// JSON, which every language reads. The default.
#[derive(Debug, Clone, Copy)]
pub struct Json;

/// `MessagePack` with the names of fields: smaller and faster, and nearly as widely read.
#[derive(Debug, Clone, Copy)]
pub struct MessagePack;

/// Bytes as the loader gave them.
#[derive(Debug, Clone, Copy)]
pub struct Raw;

/// Bytes of entries in any format, for tools that show entries. Values are stored as [`Raw`].
#[derive(Debug, Clone, Copy)]
pub struct AnyFormat;

impl Encoding for Json {
    const FORMAT: Format = Format::Json;
}

impl Encoding for MessagePack {
    const FORMAT: Format = Format::MessagePack;
}

impl Encoding for Raw {
    const FORMAT: Format = Format::Raw;
}

impl Encoding for AnyFormat {
    const FORMAT: Format = Format::Raw;

    fn reads(_: Format) -> bool {
        true
    }
}

impl<V: Serialize + DeserializeOwned> Codec<V> for Json {
    fn encode(value: &V) -> Result<Vec<u8>, Box<dyn StdError + Send + Sync>> {
        Ok(serde_json::to_vec(value)?)
    }

    fn decode(bytes: &[u8]) -> Result<V, Box<dyn StdError + Send + Sync>> {
        Ok(serde_json::from_slice(bytes)?)
    }
}

impl<V: Serialize + DeserializeOwned> Codec<V> for MessagePack {
    fn encode(value: &V) -> Result<Vec<u8>, Box<dyn StdError + Send + Sync>> {
        Ok(rmp_serde::to_vec_named(value)?)
    }

    fn decode(bytes: &[u8]) -> Result<V, Box<dyn StdError + Send + Sync>> {
        Ok(rmp_serde::from_slice(bytes)?)
    }
}

impl Codec<Vec<u8>> for Raw {
    fn encode(value: &Vec<u8>) -> Result<Vec<u8>, Box<dyn StdError + Send + Sync>> {
        Ok(value.clone())
    }

    fn decode(bytes: &[u8]) -> Result<Vec<u8>, Box<dyn StdError + Send + Sync>> {
        Ok(bytes.to_vec())
    }
}

impl Codec<Vec<u8>> for AnyFormat {
    fn encode(value: &Vec<u8>) -> Result<Vec<u8>, Box<dyn StdError + Send + Sync>> {
        Raw::encode(value)
    }

    fn decode(bytes: &[u8]) -> Result<Vec<u8>, Box<dyn StdError + Send + Sync>> {
        Raw::decode(bytes)
    }
}
