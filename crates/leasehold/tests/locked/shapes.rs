//! Functions of every shape: what a user may write around a body and in it is as without the attribute.

use std::fmt::Display;
use std::sync::Arc;

use futures_util::future::join_all;
use leasehold::{Client, Error, locked};

type Anything = Box<dyn std::error::Error + Send + Sync>;

/// The parts of an order.
#[derive(Clone)]
struct Order {
    id: u64,
    text: String,
}

#[derive(Clone)]
struct Shop {
    locks: Client,
}

trait Counts {
    async fn locks(&self) -> Client;

    #[locked("count", client = self.locks().await)]
    async fn count(&self) -> Result<usize, Error> {
        Ok(self.locks().await.names().await?.len())
    }
}

impl Counts for Shop {
    async fn locks(&self) -> Client {
        self.locks.clone()
    }
}

impl Shop {
    #[locked("orders:{}", order.id, client = self.locks, lease = lease)]
    async fn borrows<'a>(&self, order: &'a mut Order) -> Result<&'a str, Error> {
        tokio::task::yield_now().await;
        order.text = format!("{} under {}", order.id, lease.fence());
        Ok(&order.text)
    }

    #[locked("orders:{}", order.id, client = self.locks, lease = lease)]
    fn borrows_blocking<'a>(&self, order: &'a mut Order) -> Result<&'a str, Error> {
        order.text = format!("{} under {}", order.id, lease.fence());
        Ok(&order.text)
    }

    #[locked("shop", client = self.locks)]
    async fn borrows_self(&mut self, _more: &str) -> Result<&mut Client, Error> {
        Ok(&mut self.locks)
    }

    #[locked("shop", client = self.locks)]
    fn borrows_self_blocking(&mut self, _more: &str) -> Result<&mut Client, Error> {
        Ok(&mut self.locks)
    }

    #[locked("{a}:{name}", client = self.locks)]
    async fn takes_patterns(
        self,
        (a, mut b): (u32, Vec<u32>),
        Order { id, text: name }: Order,
        lock: &str,
        _: u8,
    ) -> Result<(u64, u32, usize), Error> {
        b.push(a);
        Ok((id, b.iter().sum(), name.len() + lock.len()))
    }

    #[locked("{many}", client = self.locks)]
    async fn is_generic<T, U, const N: usize>(
        self: &Arc<Self>,
        many: impl Display,
        with: impl Fn(&str) -> T,
        all: [U; N],
    ) -> Result<Vec<String>, Anything>
    where
        T: ToString,
        U: Display,
    {
        let number: usize = many.to_string().parse()?;
        let texts = all.iter().take(number);
        let futures = texts.map(|text| async { with(&text.to_string()).to_string() });
        Ok(join_all(futures).await)
    }

    /// A doc comment and attributes stay.
    #[must_use]
    #[locked("shop", client = self.locks)]
    #[allow(clippy::unused_async)]
    async fn is_opaque(&self) -> Result<impl Iterator<Item = u32> + use<>, Error> {
        #![allow(unused_variables)]
        let unused = 7;
        Ok([1, 2].into_iter())
    }

    #[locked("shop", client = self.locks)]
    fn is_opaque_blocking(&self) -> Result<impl Iterator<Item = u32> + use<>, Error> {
        Ok([1, 2].into_iter())
    }

    #[locked("shop", client = self.locks)]
    async fn coerces(&self, early: bool) -> Result<Box<dyn Display + Send>, Anything> {
        if early {
            return Ok(Box::new("early"));
        }
        if self.locks.store().is_empty() {
            Err("it has no name")?;
        }
        Ok(Box::new(7))
    }

    #[locked("{left}", client = self.locks)]
    async fn recurses(&self, left: u32) -> Result<u32, Error> {
        if left == 0 {
            return Ok(0);
        }
        let rest = Box::pin(self.recurses(left - 1)).await?;
        Ok(rest + left)
    }

    #[locked("shop", client = self.locks)]
    async fn has_any_error<E: From<Error> + From<u32>>(&self, code: u32) -> Result<(), E> {
        if code == 0 { Ok(()) } else { Err(code)? }
    }
}

/// The macro's own variables are not those of the body, whatever their names.
#[locked("{name}:{lock}", client = client)]
async fn names_are_apart(client: &Client, name: u32, lock: u32) -> Result<u32, Error> {
    Ok(name + lock)
}

/// The compiler warns of a block in a block if it is the user's, and has one line.
#[rustfmt::skip]
#[deny(unused_braces)]
#[locked("short", client = client)]
async fn has_one_line(client: &Client) -> Result<u32, Error> { Ok(7) }

macro_rules! function {
    ($name:ident, $argument:ident, $answer:expr) => {
        #[locked("{}", $argument, client = client)]
        async fn $name(client: &Client, $argument: u32) -> Result<u32, Error> {
            Ok($answer)
        }
    };
}
function!(is_made_by_a_macro, number, number + 1);

#[tokio::test]
async fn functions_of_every_shape_run_in_a_task() {
    let mut shop = Shop {
        locks: Client::embedded().unwrap(),
    };
    let work = async move {
        let text = String::new();
        let mut order = Order { id: 7, text };
        assert!(shop.borrows(&mut order).await?.starts_with("7 under "));
        assert_eq!(shop.borrows_self("").await?.store(), "memory:");
        let more = shop.clone();
        let taken = more.takes_patterns((1, vec![2]), order.clone(), "lock", 0);
        let (id, sum, lengths) = taken.await?;
        assert_eq!((id, sum, lengths), (7, 3, order.text.len() + 4));
        let shared = Arc::new(shop.clone());
        let all = shared.is_generic(2, str::len, ["a", "bb", "ccc"]);
        assert_eq!(all.await?, ["1", "2"]);
        assert_eq!(shop.is_opaque().await?.sum::<u32>(), 3);
        assert_eq!(shop.coerces(true).await?.to_string(), "early");
        assert_eq!(shop.coerces(false).await?.to_string(), "7");
        assert_eq!(shop.recurses(3).await?, 6);
        assert_eq!(names_are_apart(&shop.locks, 3, 4).await?, 7);
        assert_eq!(has_one_line(&shop.locks).await?, 7);
        assert_eq!(is_made_by_a_macro(&shop.locks, 3).await?, 4);
        Ok::<_, Anything>(shop)
    };
    let shop: Shop = tokio::task::JoinSet::from_iter([work])
        .join_all()
        .await
        .remove(0)
        .unwrap();
    assert_eq!(shop.count().await, Ok(1));
    assert_eq!(shop.has_any_error::<AnyError>(7).await, Err(AnyError(7)));
    tokio::task::spawn_blocking(move || {
        let (mut shop, text) = (shop, String::new());
        let mut order = Order { id: 7, text };
        assert!(shop.borrows_blocking(&mut order).unwrap().starts_with('7'));
        let client = shop.borrows_self_blocking("").unwrap();
        assert_eq!(client.store(), "memory:");
        assert_eq!(shop.is_opaque_blocking().unwrap().sum::<u32>(), 3);
    })
    .await
    .unwrap();
}

#[derive(Debug, PartialEq)]
struct AnyError(u32);

impl From<Error> for AnyError {
    fn from(_: Error) -> Self {
        Self(0)
    }
}

impl From<u32> for AnyError {
    fn from(code: u32) -> Self {
        Self(code)
    }
}
