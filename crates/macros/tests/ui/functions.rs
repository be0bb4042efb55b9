//! Functions that the attribute refuses.

use leasehold::{Error, locked};

#[locked("orders")]
async fn without_a_result() {}

#[locked("orders")]
const fn constant<const N: usize>() -> Result<(), Error> {
    Ok(())
}

#[locked("orders")]
struct Order;

trait Orders {
    #[locked("orders")]
    async fn without_a_body(&self) -> Result<(), Error>;
}

fn main() {}
