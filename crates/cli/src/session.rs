//! One connection to the store, from its opening to its end. Must never leave a lock or a place in line behind.

use std::io;
use std::time::Duration;

use leasehold::Client;

use crate::exit::{Exit, LOST, MORE_RESOURCES, SOFTWARE};
use crate::signals::Signals;
use crate::store::Target;
use crate::sys;

/// How long to wait for the client to clean up. What is left is ended by its TTL.
const CLOSE: Duration = Duration::from_secs(1);

/// The same after a lease was lost, when whoever starts the work anew should not wait.
const CLOSE_LOST: Duration = Duration::from_millis(200);

/// How many files are open at one time at most, beside those that this process was started with: two runtimes, the signals, a
/// connection with the look-up of its name or the files of a database, the terminal, the guardian's line, a command about to
/// start.
const FILES: usize = 20;

/// Does `work` with a client of `target`, which is closed whatever comes of it. A signal that asks this process to end ends
/// it while it connects; after that, signals are for `work` to hear.
pub(crate) fn with_client(
    target: Target,
    work: impl AsyncFnOnce(&Client, &mut Signals) -> Result<Exit, Exit>,
) -> Exit {
    in_runtime(connected(target, work)).unwrap_or_else(|exit| exit)
}

/// Does `work` on this thread, from which commands are started: it lives as long as the process (see `sys::prepare`).
pub(crate) fn in_runtime<T>(work: impl Future<Output = Result<T, Exit>>) -> Result<T, Exit> {
    // tokio panics where there is none left for its signals, and others would call the store or the command the cause.
    sys::have_room_for(FILES).map_err(|error| refused_by_system(&error))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| refused_by_system(&error))?;
    let done = runtime.block_on(work);
    // A name that is being looked up cannot be called off, and may take half a minute; nor can a thread that reads.
    runtime.shutdown_background();
    done
}

async fn connected(
    target: Target,
    work: impl AsyncFnOnce(&Client, &mut Signals) -> Result<Exit, Exit>,
) -> Result<Exit, Exit> {
    let mut signals = Signals::catch().map_err(|error| refused_by_system(&error))?;
    let client = tokio::select! {
        biased;
        signal = signals.next_ending() => return Err(Exit::by(signal)),
        client = target.connect() => client.map_err(|error| target.explained(error))?,
    };
    let notice = tokio::time::timeout(CLOSE, target.notice());
    let (exit, _noticed) = tokio::join!(work(&client, &mut signals), notice);
    let limit = match &exit {
        Ok(exit) if exit.code() == LOST => CLOSE_LOST,
        _ => CLOSE,
    };
    // Out of time means that the store does not answer, which has been said or does not matter any more.
    client.close_within(limit).await;
    exit
}

/// The system refused this program something that it cannot do without.
pub(crate) fn refused_by_system(error: &io::Error) -> Exit {
    let exit = Exit::saying(
        SOFTWARE,
        format!("the system refused: {error} (exit {SOFTWARE})"),
    );
    if sys::is_shortage(error) {
        exit.adding(&format!("next    {MORE_RESOURCES}"))
    } else {
        exit
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use clap::Parser;
    use leasehold::Clock;

    use super::*;
    use crate::store::StoreArgs;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        store: StoreArgs,
    }

    #[test]
    #[allow(
        clippy::disallowed_methods,
        reason = "blocks as the look-up of a name does"
    )]
    fn the_end_does_not_wait_for_a_name_to_be_looked_up() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("local:{}/locks.db", directory.path().display());
        let line = Line::try_parse_from(["x", "--url", &url]).unwrap();
        let begun = Clock::system().now();
        let exit = with_client(line.store.target().unwrap(), async |_, _| {
            drop(tokio::task::spawn_blocking(|| {
                sleep(Duration::from_secs(60));
            }));
            tokio::task::yield_now().await;
            Ok(Exit::quiet(7))
        });
        assert_eq!(exit.code(), 7);
        assert!(Clock::system().now().since(begun) < Duration::from_secs(30));
    }
}
