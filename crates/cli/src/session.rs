//! One connection to the store, from connect to close. Closing it releases all locks and queue places.

use std::io;
use std::time::Duration;

use leasehold::Client;

use crate::exit::{Exit, LOST, MORE_RESOURCES, SOFTWARE, exit};
use crate::signals::Signals;
use crate::store::Target;
use crate::sys;

/// The time limit for closing the client. The TTL ends what is left after that.
const CLOSE: Duration = Duration::from_secs(1);

/// The time limit for closing after a lost lease, shorter because a restart of the work should not wait.
const CLOSE_LOST: Duration = Duration::from_millis(200);

/// The maximal number of files this process opens: two runtimes, the signals, a connection with its name look-up
/// or database files, the terminal, the guardian's socket, a command being started.
const FILES: usize = 20;

/// Runs `work` with a client of `target`, and closes the client afterwards. Until the connection is made, an
/// ending signal ends the process; then `work` handles signals.
pub(crate) fn with_client(
    target: Target,
    work: impl AsyncFnOnce(&Client, &mut Signals) -> Result<Exit, Exit>,
) -> Exit {
    let until = async |(): &mut (), signals: &mut Signals| Exit::by(signals.next_ending().await);
    let work =
        async |(): &mut (), client: &Client, signals: &mut Signals| work(client, signals).await;
    with_client_unless(target, (), until, work)
}

/// Runs `work` with a client of `target`, and closes the client afterwards. An ending signal ends the process at any
/// time.
pub(crate) fn with_client_until_signal(
    target: Target,
    work: impl AsyncFnOnce(&Client) -> Result<Exit, Exit>,
) -> Exit {
    with_client(target, async |client: &Client, signals: &mut Signals| {
        tokio::select! {
            biased;
            signal = signals.next_ending() => Err(Exit::by(signal)),
            done = work(client) => done,
        }
    })
}

/// Runs `work` with a client of `target`, and closes the client afterwards. While the client connects, `until` waits for
/// what ends this process: a signal, or a command of the program that started it.
pub(crate) fn with_client_unless<S>(
    target: Target,
    state: S,
    until: impl AsyncFnOnce(&mut S, &mut Signals) -> Exit,
    work: impl AsyncFnOnce(&mut S, &Client, &mut Signals) -> Result<Exit, Exit>,
) -> Exit {
    in_runtime(connected(target, state, until, work)).unwrap_or_else(|exit| exit)
}

/// Runs `work` on this thread. Commands are started from it, and it lives as long as the process (see
/// `sys::prepare`).
pub(crate) fn in_runtime<T>(work: impl Future<Output = Result<T, Exit>>) -> Result<T, Exit> {
    // tokio panics without a free file for its signals, and other failures would blame the store or the command.
    sys::have_room_for(FILES).map_err(|error| refused_by_system(&error))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| refused_by_system(&error))?;
    let done = runtime.block_on(work);
    // A name look-up cannot be cancelled and may take half a minute; neither can a thread that reads.
    runtime.shutdown_background();
    done
}

async fn connected<S>(
    target: Target,
    mut state: S,
    until: impl AsyncFnOnce(&mut S, &mut Signals) -> Exit,
    work: impl AsyncFnOnce(&mut S, &Client, &mut Signals) -> Result<Exit, Exit>,
) -> Result<Exit, Exit> {
    let mut signals = Signals::catch().map_err(|error| refused_by_system(&error))?;
    let client = tokio::select! {
        biased;
        exit = until(&mut state, &mut signals) => return Err(exit),
        client = target.connect() => client.map_err(|error| target.explained(error))?,
    };
    let notice = tokio::time::timeout(CLOSE, target.notice());
    let (exit, _noticed) = tokio::join!(work(&mut state, &client, &mut signals), notice);
    let limit = match &exit {
        Ok(exit) if exit.code() == LOST => CLOSE_LOST,
        _ => CLOSE,
    };
    // On a timeout the store does not answer, which is already reported or no longer matters.
    client.close_within(limit).await;
    exit
}

/// The exit for a refused system call that this program needs.
pub(crate) fn refused_by_system(error: &io::Error) -> Exit {
    let exit = exit!(SOFTWARE, "a system call failed: {error} (exit {SOFTWARE})");
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
