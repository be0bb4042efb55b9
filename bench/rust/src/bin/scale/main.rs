//! The cost of the library at scale, on the redis-server at `port`: `scale <part> port=<port> key=value...` prints
//! JSON lines `{part, metric, value}`. `bench/scale` starts the server and the parts.

mod crash;
mod curve;
mod failover;
mod hold;
mod memory;
mod names;
mod phase;
mod renewal;

use leasehold_bench::{Args, runtime};

fn main() {
    let args = Args::parse();
    let part = std::env::args().nth(1).unwrap_or_default();
    let threads = args.get("threads", 2);
    runtime(threads).block_on(async {
        match part.as_str() {
            "renewal" => renewal::run(&args).await,
            "held" => memory::held(&args).await,
            "readers" => memory::readers(&args).await,
            "permits" => memory::permits(&args).await,
            "phase" => phase::run(&args).await,
            "phase-readers" => phase::readers(&args).await,
            "waiters" => memory::waiters(&args).await,
            "cycles" => memory::cycles(&args).await,
            "curve" => curve::run(&args).await,
            "names" => names::run(&args).await,
            "hold" => crash::hold(&args).await,
            "wait" => crash::wait(&args).await,
            "failover" => failover::run(&args).await,
            other => panic!(
                "{other}: renewal, held, readers, permits, phase, waiters, cycles, curve, names, hold, wait or failover"
            ),
        }
    });
}
