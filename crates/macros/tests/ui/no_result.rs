//! A type that is no `Result`.

use leasehold::locked;

type Count = u64;

#[locked("orders")]
async fn pack() -> Count {
    7
}

#[locked("orders")]
fn works_after_it_has_returned() -> impl Future<Output = Result<(), leasehold::Error>> {
    async { Ok(()) }
}

fn main() {}
