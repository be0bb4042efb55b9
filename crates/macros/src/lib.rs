//! The attribute `#[locked]`. Programs use it as `leasehold::locked`, where it is documented.
//!
//! It writes what a program would write: `client.mutex(name).ttl(ttl)` with a [`Mutex`] or another lock, and the body as a closure. Hidden functions of the
//! library (`__locked`) run the body under the lock, and turn what happens into the function's own result.
//!
//! [`Mutex`]: https://docs.rs/leasehold/latest/leasehold/struct.Mutex.html

#![forbid(unsafe_code)]

mod arguments;
mod function;

use proc_macro::TokenStream;
use proc_macro2::{Ident, Span, TokenStream as Tokens};
use quote::{quote, quote_spanned};
use syn::{Error, Result};

use crate::arguments::{Arguments, Kind, Wait};
use crate::function::Function;

/// The page at the registry has a program, which is run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct RegistryPage;

#[allow(
    missing_docs,
    reason = "documented where it is exported, as leasehold::locked"
)]
#[proc_macro_attribute]
pub fn locked(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let written = syn::parse(arguments)
        .and_then(|arguments| under_lock(&arguments, &syn::parse(item.clone())?));
    written.map_or_else(
        // The function stays, so that its callers bring no further errors.
        |error| TokenStream::from_iter([error.into_compile_error().into(), item]),
        Into::into,
    )
}

/// The function with its body under the lock.
fn under_lock(arguments: &Arguments, function: &Function) -> Result<Tokens> {
    let is_async = function.is_async();
    if !is_async && !cfg!(feature = "blocking") {
        let why = "a function that is not `async` needs the feature `blocking` of leasehold";
        return Err(Error::new(function.span(), why));
    }
    let output = function.output()?;
    let Arguments {
        name,
        values,
        settings,
        ..
    } = arguments;

    // Its variables have names of their own: the body does not see them.
    let at = Span::mixed_site();
    // The compiler points there if the value has no default.
    let answer = arguments.skip.map_or_else(
        || quote_spanned!(at=> ::leasehold::__locked::answer::<#output>),
        |skip| quote_spanned!(skip=> ::leasehold::__locked::answer_or_skip::<#output>),
    );
    let client = arguments.client.as_ref().map_or_else(
        || {
            quote_spanned! {at=>
                match ::leasehold::__locked::client() {
                    ::core::result::Result::Ok(client) => client,
                    ::core::result::Result::Err(error) => {
                        return ::leasehold::__locked::answer::<#output>(::core::result::Result::Err(error));
                    }
                }
            }
        },
        |client| quote_spanned!(at=> (#client)),
    );
    let key = quote_spanned!(at=> ::std::format!(#name #(, #values)*));
    let (lock, kind) = match &arguments.kind {
        Kind::Exclusive => (quote_spanned!(at=> mutex(#key)), quote!(Exclusive)),
        Kind::Shared => (quote_spanned!(at=> rw_lock(#key).read()), quote!(Shared)),
        Kind::Slots(slots) => (quote_spanned!(at=> semaphore(#key, #slots)), quote!(Slots)),
    };
    let kind = quote_spanned!(at=> ::leasehold::kind::#kind);
    // Arguments move into the body, so they are dropped before the lock is released.
    let body = function.body();
    let unused = || Ident::new("_lease", at);
    let lease = arguments.lease.clone().unwrap_or_else(unused);
    let (run, work, awaited) = if is_async {
        let work = quote_spanned!(at=> async move |#lease: &::leasehold::Lease<#kind>| -> #output {
            // The type of an async closure does not reach the values in its body. That of a `return` does.
            if let ::core::option::Option::Some(never) = ::core::option::Option::None::<#output> {
                return never;
            }
            #body
        });
        (
            quote_spanned!(at=> __locked::run),
            work,
            quote_spanned!(at=> .await),
        )
    } else {
        let work = quote_spanned!(at=> move |#lease: &::leasehold::blocking::Lease<#kind>| -> #output #body);
        (
            quote_spanned!(at=> blocking::__run_locked),
            work,
            Tokens::new(),
        )
    };
    let wait = match &arguments.wait {
        Wait::Forever => quote_spanned!(at=> Forever),
        Wait::Within(limit) => quote_spanned!(at=> Within(#limit)),
        Wait::No => quote_spanned!(at=> No),
    };
    Ok(function.with_body(&quote_spanned! {at=>
        let lock = #client.#lock #(#settings)*;
        let wait = ::leasehold::__locked::Wait::#wait;
        #answer(::leasehold::#run(lock, wait, #work)#awaited)
    }))
}
