//! Errors of the name and of the body point to them.

use leasehold::{Error, locked};

#[locked("orders:{parcel}")]
async fn unknown_argument(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[locked("orders:{}")]
async fn missing_value(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[locked("orders:{order}")]
async fn unknown_in_the_body(order: u64) -> Result<u64, Error> {
    Ok(order + parcels)
}

#[locked("orders:{order}")]
fn unknown_in_a_blocking_body(order: u64) -> Result<u64, Error> {
    Ok(order + parcels)
}

fn main() {}
