//! A call that is skipped needs a value.

use leasehold::{Error, locked};

struct Packed;

#[locked("orders", skip)]
async fn pack() -> Result<Packed, Error> {
    Ok(Packed)
}

fn main() {}
