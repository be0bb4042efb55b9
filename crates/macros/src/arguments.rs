//! The arguments of the attribute: the name of the lock, then options.

use std::collections::HashSet;
use std::time::Duration;

use proc_macro2::{Ident, Span, TokenStream as Tokens};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, LitStr, Result, Token};

const NAME: &str = "write the name of the lock first: #[locked(\"orders:{id}\")]";

const OPTIONS: &str = "shared, slots, wait, skip, ttl, at_least, max_hold, note, lease, client";

const WRITE: &str = "write 30s, 5m, 2h, or a number of seconds, in quotes";

/// How long a call waits for a busy lock.
pub(crate) enum Wait {
    Forever,
    Within(Tokens),
    No,
}

/// The kind of the lock.
pub(crate) enum Kind {
    Exclusive,
    Shared,
    /// With so many slots.
    Slots(Expr),
}

/// The words that stand alone.
const FLAGS: [&str; 2] = ["skip", "shared"];

/// The arguments of the attribute.
pub(crate) struct Arguments {
    /// The name of the lock as a format string, and the values that it does not capture.
    pub(crate) name: LitStr,
    pub(crate) values: Vec<Expr>,
    pub(crate) kind: Kind,
    pub(crate) client: Option<Expr>,
    pub(crate) wait: Wait,
    /// A call that does not get the lock is `Ok` with the default value. Here is where the user says so.
    pub(crate) skip: Option<Span>,
    /// The name by which the body knows the lease.
    pub(crate) lease: Option<Ident>,
    /// Calls of methods of the lock.
    pub(crate) settings: Vec<Tokens>,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name = input
            .parse()
            .map_err(|error| Error::new(error.span(), NAME))?;
        let mut arguments = Self {
            name,
            values: Vec::new(),
            kind: Kind::Exclusive,
            client: None,
            wait: Wait::Forever,
            skip: None,
            lease: None,
            settings: Vec::new(),
        };
        let (mut given, mut waits) = (HashSet::new(), None);
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                break;
            }
            if !is_option(input) {
                let value: Expr = input.parse()?;
                if !given.is_empty() {
                    let why = "a value of the name stands before the options";
                    return Err(Error::new_spanned(value, why));
                }
                arguments.values.push(value);
                continue;
            }
            let option = input.call(Ident::parse_any)?;
            let word = option.to_string();
            let value = input.parse::<Option<Token![=]>>()?;
            if value.is_some() && FLAGS.contains(&word.as_str()) {
                let why = format!("`{word}` takes no value");
                return Err(Error::new(option.span(), why));
            }
            if word == "shared" && given.contains("slots")
                || word == "slots" && given.contains("shared")
            {
                let why = "a lock is `shared`, or it has `slots`: not both";
                return Err(Error::new(option.span(), why));
            }
            match word.as_str() {
                "wait" => waits = Some(wait(input)?),
                "skip" => arguments.skip = Some(option.span()),
                "shared" => arguments.kind = Kind::Shared,
                "slots" => arguments.kind = Kind::Slots(input.parse()?),
                "lease" => arguments.lease = Some(input.parse()?),
                "client" => arguments.client = Some(input.parse()?),
                "ttl" | "at_least" | "max_hold" => {
                    let duration = duration(input)?;
                    arguments.settings.push(quote!(.#option(#duration)));
                }
                "note" => {
                    let note: Expr = input.parse()?;
                    arguments.settings.push(quote!(.#option(#note)));
                }
                _ => {
                    let why = format!(
                        "no option `{word}`; the options are {OPTIONS}. A value of the name has no name: \"orders:{{}}\", {word}"
                    );
                    return Err(Error::new(option.span(), why));
                }
            }
            if !given.insert(word) {
                return Err(Error::new(option.span(), format!("`{option}` twice")));
            }
        }
        arguments.wait = match waits {
            None if arguments.skip.is_some() => Wait::No,
            None => Wait::Forever,
            Some(wait) => wait,
        };
        Ok(arguments)
    }
}

/// Whether an option follows: `name = ...`, or a word that stands alone. Any other expression is a value of the name.
fn is_option(input: ParseStream<'_>) -> bool {
    let mut rest = input.fork();
    let Ok(word) = rest.call(Ident::parse_any) else {
        return false;
    };
    let rest = &mut rest;
    rest.peek(Token![=]) && !rest.peek(Token![==])
        || FLAGS.contains(&word.to_string().as_str()) && (rest.is_empty() || rest.peek(Token![,]))
}

fn wait(input: ParseStream<'_>) -> Result<Wait> {
    match input.fork().parse::<LitStr>() {
        Ok(text) if text.value() == "no" => {
            input.parse::<LitStr>()?;
            Ok(Wait::No)
        }
        _ => duration(input).map(Wait::Within),
    }
}

/// A duration in the grammar of the command, as the code that makes it.
fn duration(input: ParseStream<'_>) -> Result<Tokens> {
    let text: LitStr = input
        .parse()
        .map_err(|error| Error::new(error.span(), WRITE))?;
    let duration = read(&text.value()).map_err(|why| Error::new(text.span(), why))?;
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    Ok(quote_spanned!(text.span()=> ::core::time::Duration::new(#seconds, #nanos)))
}

/// `5s`, `1h 30m`, `0.5` (seconds).
fn read(text: &str) -> std::result::Result<Duration, &'static str> {
    let text = text.trim();
    let is_number = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    if !text.is_empty() && text.bytes().all(is_number) {
        let seconds = text.parse().map_err(|_| WRITE)?;
        return Duration::try_from_secs_f64(seconds).map_err(|_| "is too long");
    }
    // The messages of humantime are about byte positions.
    humantime::parse_duration(text).map_err(|_| WRITE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(text: &str) -> std::result::Result<Arguments, String> {
        syn::parse_str(text).map_err(|error: Error| error.to_string())
    }

    #[test]
    fn a_duration_is_read_as_by_the_command() {
        let reads = |text, ms| assert_eq!(read(text), Ok(Duration::from_millis(ms)), "{text}");
        reads("5s", 5_000);
        reads("1h 30m", 5_400_000);
        reads("250ms", 250);
        reads(" 0.5 ", 500);
        reads("7", 7_000);
        for wrong in ["", "5 parsecs", "-1s", "1.2.3", "no"] {
            assert_eq!(read(wrong), Err(WRITE), "{wrong}");
        }
        assert!(read("99999999999999999999999").is_err());
    }

    #[test]
    fn values_of_the_name_are_told_from_options() {
        let read = arguments(r#""{}:{}", skip == 1, order.id, skip, ttl = "5s","#).unwrap();
        assert_eq!((read.values.len(), read.settings.len()), (2, 1));
        assert!(read.skip.is_some());
        let read = arguments(r#""{}", skip.id"#).unwrap();
        assert_eq!((read.values.len(), read.skip.is_some()), (1, false));
    }

    #[test]
    fn a_lock_has_one_kind() {
        assert!(matches!(arguments("\"x\"").unwrap().kind, Kind::Exclusive));
        let read = arguments("\"x\", shared, skip").unwrap();
        assert!(matches!(read.kind, Kind::Shared) && read.skip.is_some());
        let read = arguments("\"x\", slots = self.seats + 1").unwrap();
        assert!(matches!(read.kind, Kind::Slots(_)));
        for both in ["shared, slots = 2", "slots = 2, shared"] {
            let refused = arguments(&format!("\"x\", {both}")).err();
            assert!(refused.unwrap().contains("not both"), "{both}");
        }
        let refused = arguments("\"x\", shared = true").err();
        assert_eq!(refused.unwrap(), "`shared` takes no value");
    }

    #[test]
    fn the_wait_and_skip_say_how_long_a_call_waits() {
        let waits = |text: &str| match arguments(&format!("\"x\"{text}")).unwrap().wait {
            Wait::Forever => "forever".to_owned(),
            Wait::No => "no".to_owned(),
            Wait::Within(limit) => limit.to_string().replace(' ', ""),
        };
        assert_eq!(waits(""), "forever");
        assert_eq!(waits(", wait = \"no\""), "no");
        assert_eq!(waits(", skip"), "no");
        let limit = waits(", skip, wait = \"5s\"");
        assert_eq!(limit, "::core::time::Duration::new(5u64,0u32)");
    }
}
