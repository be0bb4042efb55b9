//! What a call gives: a value, with its age and its origin, or an error. And how values are encoded.

use std::error::Error as StdError;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Invalid, Moment, StoreError};
use leasehold_core::LockName;
use leasehold_core::cache::{Format, Standing, Value};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A value from the cache, with its age and its origin. Dereferences to the value.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = leasehold::Client::embedded()?;
/// use leasehold_cache::{Cache, Origin};
///
/// let load = || async { Ok::<_, std::io::Error>(String::from("<h1>hello</h1>")) };
/// let cache = Cache::new(&client);
/// let page = cache.get_or_refresh("home", load).await?;
/// assert_eq!((page.len(), page.origin()), (14, Origin::Loaded));
/// # client.close().await; Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Cached<V> {
    pub(crate) value: Arc<V>,
    pub(crate) age: Duration,
    pub(crate) origin: Origin,
}

impl<V> Cached<V> {
    /// A stored value, decoded as the caller does, or why that failed.
    pub(crate) fn read<C: Codec<V>>(value: &Value, now_ms: u64) -> Result<Self, String> {
        Ok(Self {
            value: Arc::new(decode::<V, C>(value)?),
            age: value.header.age(now_ms),
            origin: value.header.standing(now_ms).into(),
        })
    }

    /// How long ago the value was stored, by the store's clock. Zero for a value that was loaded just now.
    pub fn age(&self) -> Duration {
        self.age
    }

    /// Where the value came from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The value, shared.
    pub fn into_shared(self) -> Arc<V> {
        self.value
    }

    /// The value, cloned if it is shared.
    pub fn into_inner(self) -> V
    where
        V: Clone,
    {
        Arc::unwrap_or_clone(self.value)
    }
}

impl<V> Deref for Cached<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.value
    }
}

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The stored value, fresh.
    Fresh,
    /// The stored value, stale.
    Stale,
    /// This call loaded it.
    Loaded,
    /// Another call in this or another process loaded it, and this call waited.
    Waited,
}

impl From<Standing> for Origin {
    fn from(standing: Standing) -> Self {
        match standing {
            Standing::Fresh => Self::Fresh,
            Standing::Stale => Self::Stale,
        }
    }
}

/// Why there is no value.
///
/// | kind | was anything loaded? | may I retry? |
/// |---|---|---|
/// | [`Error::Busy`] | another caller still loads | yes |
/// | [`Error::Load`] | a load failed, in this or another process | after [`LoadFailed::retry_after`]; until then no caller loads |
/// | [`Error::Store`] | no verdict | yes |
/// | [`Error::Value`] | yes, but the value cannot be encoded or decoded | not with the same types |
/// | [`Error::Invalid`] | no | not with the same input |
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No caller loaded the value within `wait_at_most`.
    #[error("\"{key}\" is still being loaded by another after {waited:.1?}")]
    #[non_exhaustive]
    Busy {
        /// The entry.
        key: String,
        /// How long the caller waited.
        waited: Duration,
    },
    /// The load failed and there is no stale value that may serve.
    #[error(transparent)]
    Load(#[from] LoadFailed),
    /// The store gave no verdict.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stored value cannot be decoded as the requested type, the loaded value cannot be encoded, or the key holds something that is not
    /// a cache entry.
    #[error("the value of \"{key}\" {why}")]
    #[non_exhaustive]
    Value {
        /// The entry.
        key: String,
        /// The reason.
        why: String,
    },
    /// The input was refused before any I/O.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// A load that failed.
#[derive(Clone)]
#[non_exhaustive]
pub struct LoadFailed {
    /// The entry.
    pub key: String,
    /// The text of the loader's error. Other processes get its first 256 bytes.
    pub text: String,
    /// How long no caller in the fleet retries.
    pub retry_after: Duration,
    /// The loader's error, if it happened in this process.
    pub cause: Option<Arc<dyn StdError + Send + Sync>>,
}

impl fmt::Display for LoadFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, text, retry_after) = (&self.key, &self.text, self.retry_after);
        write!(
            f,
            "loading \"{key}\" failed: {text}; nobody tries again for {retry_after:.1?}"
        )
    }
}

impl fmt::Debug for LoadFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for LoadFailed {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let cause = self.cause.as_ref()?;
        Some(&**cause)
    }
}

/// Why a reader gets no value, whatever its entry.
#[derive(Debug, Clone)]
pub(crate) enum Refusal {
    Store(StoreError),
    /// Another caller has been loading, or failing to load, for this long.
    Busy(Duration),
    /// The load failed, in this or another process. No caller retries until this moment.
    Failed(Failure, Moment),
    /// The loader had no value.
    Nothing,
    /// The key holds another kind of value, of this Redis type.
    Foreign(String),
    /// The stored value cannot be decoded here.
    Unreadable,
    /// The caller runs inside the load of this entry.
    Nested,
    /// The loader ended with its runtime, or the shared load has nothing for this caller. Another caller than its own asks again.
    GaveUp,
}

/// A failed load: the text of the loader's error, and the error itself where it happened in this process.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) text: String,
    pub(crate) cause: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Failure {
    pub(crate) fn of(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let error = error.into();
        Self {
            text: error.to_string(),
            cause: Some(Arc::from(error)),
        }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Refusal {
    /// The error for the reader of this entry.
    pub(crate) fn into_error(self, key: &LockName, now: Moment) -> Error {
        let key = key.as_str().to_owned();
        let why = match self {
            Self::Store(error) => return error.into(),
            Self::Busy(waited) => return Error::Busy { key, waited },
            Self::Failed(failure, until) => {
                return Error::Load(LoadFailed {
                    key,
                    text: failure.text,
                    retry_after: until.since(now),
                    cause: failure.cause,
                });
            }
            Self::Nothing => "was not among what the loader brought".to_owned(),
            Self::Foreign(kind) => format!(
                "has no place: something else stands under this key, of type {kind}; it was left alone"
            ),
            Self::Unreadable => "is written in another way by others of the fleet".to_owned(),
            Self::Nested => {
                "is asked for by its own loader, which would wait for itself".to_owned()
            }
            Self::GaveUp => "was not loaded: the loader ended with its runtime".to_owned(),
        };
        Error::Value { key, why }
    }
}

/// Encodes and decodes values of type `V`. The default codec of a cache is [`Json`].
///
/// Your own codec is a type that implements [`Encoding`] and `Codec`. The header of an entry names one of three formats. All encodings
/// but JSON and `MessagePack` are [`Format::Raw`], so use different keys for different raw encodings.
///
/// ```
/// use std::error::Error;
/// use leasehold::Client;
/// use leasehold_cache::{Cache, Codec, Encoding, Format};
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
/// let cache = Cache::new(&client);
/// let counts = cache.codec::<BigEndian>();
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
pub(crate) fn decode<V, C: Codec<V>>(value: &Value) -> Result<V, String> {
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
