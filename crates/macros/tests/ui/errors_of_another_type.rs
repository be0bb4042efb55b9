//! An error that has no place for that of the lock.

use leasehold::locked;

struct Refused;

#[locked("orders:{id}")]
async fn pack(id: u64) -> Result<u64, Refused> {
    Ok(id)
}

#[locked("orders:{id}")]
fn pack_blocking(id: u64) -> std::io::Result<u64> {
    Ok(id)
}

fn main() {}
