//! The function that the attribute stands on.

use proc_macro2::{Delimiter, Group, Span, TokenStream as Tokens};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::token::Brace;
use syn::visit_mut::{VisitMut, visit_type_mut};
use syn::{
    Attribute, Error, Result, ReturnType, Signature, Token, Type, Visibility, braced,
    parse_quote_spanned,
};

const RETURNS: &str = "a function with `#[locked]` returns `Result<T, E>` with `E: From<leasehold::Error>`, for a lock can fail";

/// A function or a method. The macro does not read its body.
pub(crate) struct Function {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    signature: Signature,
    brace: Brace,
    inner: Vec<Attribute>,
    body: Tokens,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        let signature: Signature = input.parse().map_err(|error| {
            Error::new(
                error.span(),
                format!("`#[locked]` belongs on a function: {error}"),
            )
        })?;
        if input.peek(Token![;]) {
            let why = "`#[locked]` needs a body: put it on the function of the implementation";
            return Err(input.error(why));
        }
        if let Some(constant) = &signature.constness {
            let why = "a `const fn` cannot wait for a lock";
            return Err(Error::new_spanned(constant, why));
        }
        let content;
        Ok(Self {
            attributes,
            visibility,
            signature,
            brace: braced!(content in input),
            inner: content.call(Attribute::parse_inner)?,
            body: content.parse()?,
        })
    }
}

impl Function {
    pub(crate) fn is_async(&self) -> bool {
        self.signature.asyncness.is_some()
    }

    /// Where its name is written.
    pub(crate) fn span(&self) -> Span {
        self.signature.ident.span()
    }

    /// The type of its result, as a closure may write it: with `_` for `impl Trait`.
    pub(crate) fn output(&self) -> Result<Type> {
        let ReturnType::Type(_, output) = &self.signature.output else {
            return Err(Error::new(self.span(), RETURNS));
        };
        let mut output = Type::clone(output);
        Inferred.visit_type_mut(&mut output);
        Ok(output)
    }

    /// Its body as a block. The braces are those of the user, but the macro's too: as a block in a block they are not told to be unnecessary.
    pub(crate) fn body(&self) -> Group {
        let mut block = Group::new(Delimiter::Brace, self.body.clone());
        block.set_span(self.brace.span.join().resolved_at(Span::mixed_site()));
        block
    }

    /// The function with another body.
    pub(crate) fn with_body(&self, body: &Tokens) -> Tokens {
        let Self {
            attributes,
            visibility,
            signature,
            inner,
            ..
        } = self;
        quote! {
            #(#attributes)*
            #visibility #signature {
                #(#inner)*
                #body
            }
        }
    }
}

/// Lets the compiler infer each `impl Trait`.
struct Inferred;

impl VisitMut for Inferred {
    fn visit_type_mut(&mut self, at: &mut Type) {
        if let Type::ImplTrait(opaque) = at {
            *at = parse_quote_spanned!(opaque.impl_token.span=> _);
        }
        visit_type_mut(self, at);
    }
}
