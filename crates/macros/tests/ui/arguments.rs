//! Arguments that the attribute refuses.

use leasehold::{Error, locked};

#[locked]
async fn without_a_name() -> Result<(), Error> {
    Ok(())
}

#[locked(format!("orders"))]
async fn without_a_text() -> Result<(), Error> {
    Ok(())
}

#[locked("orders", lifetime = "5s")]
async fn unknown_option() -> Result<(), Error> {
    Ok(())
}

#[locked("orders", skip = true)]
async fn flag_with_a_value() -> Result<(), Error> {
    Ok(())
}

#[locked("orders", ttl = "5 parsecs")]
async fn bad_duration() -> Result<(), Error> {
    Ok(())
}

#[locked("orders", wait = 5)]
async fn duration_without_quotes() -> Result<(), Error> {
    Ok(())
}

#[locked("orders", lease = one, ttl = "5s", lease = other)]
async fn option_twice() -> Result<(), Error> {
    Ok(())
}

#[locked("orders:{}", ttl = "5s", _id)]
async fn value_behind_an_option(_id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {
    // A function that the attribute refuses is still there.
    let _ = bad_duration();
}
