//! `leasehold ui`: a page that shows the locks of a store live.

use std::time::Duration;

use clap::Args;
use leasehold::Client;
use leasehold_serve::{Limits, Page, Token};

use crate::config::at_least;
use crate::doctor::quick_document;
use crate::exit::Exit;
use crate::messages::say;
use crate::output;
use crate::serve::{BoundServer, ListenArgs, ServeDocument};
use crate::session::{closing, in_runtime};
use crate::store::StoreArgs;
use crate::terminal::Signals;
use crate::watch::LEAST;

/// The port of `leasehold ui`.
const PORT: u16 = 7788;

const ABOUT: &str = "\
Prints an address with a fresh token, for a browser on this host. The page shows who holds each lock,
since when, how much of the lease is left, who waits, and what has changed since it was opened. It
asks the store only while it is seen: one request for 32 locks, whatever the number of pages.
  leasehold ui --url redis://127.0.0.1/
Without --allow-break it changes nothing. With it, a lock is broken by its fence, and one line on
stderr says who did it, and why.

Exit codes: 128+n ended by signal n; 64 wrong usage; 69 the store does not answer; 77 it refuses user,
password or permission; 78 no store, or the address or the token file cannot be used. See docs/ui.md.";

/// Show the locks live, on a page in the browser
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Ui {
    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    listen: ListenArgs,

    /// The interval of looks while a page is seen (1s, 250ms; a bare number is seconds), at least 50ms
    #[arg(long, value_name = "DUR", default_value = "1s", value_parser = |text: &str| at_least(LEAST, text))]
    interval: Duration,

    /// Let the page break locks
    #[arg(long)]
    allow_break: bool,

    /// Print the address and the token as one JSON document (leasehold.serve/1)
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub(crate) fn ui(args: &Ui) -> Result<Exit, Exit> {
    let target = args.store.target()?;
    let ttl = target.ttl(None)?;
    in_runtime(async {
        let mut signals = Signals::catch()?;
        let bound = args.listen.bind(PORT).await?;
        let client = tokio::select! {
            biased;
            signal = signals.next_ending() => return Err(Exit::by(signal)),
            client = target.connect() => client?,
        };
        let mut page = Page::new(&client, args.interval);
        if args.allow_break {
            page = page.allow_break(say);
        }
        let examined = target.clone();
        let page = page.examine_by(move || {
            let target = examined.clone();
            async move { quick_document(&target, ttl).await }
        });
        let work = show(&client, &page, args, bound, &mut signals);
        closing(&target, &client, Box::pin(work)).await
    })
}

async fn show(
    client: &Client,
    page: &Page,
    args: &Ui,
    bound: BoundServer,
    signals: &mut Signals,
) -> Result<Exit, Exit> {
    let url = format!("{}/ui/", bound.url);
    let token = bound.token.as_ref().map(Token::secret);
    if args.json {
        output::print_json(&ServeDocument {
            url: &url,
            store: client.store(),
            token,
        })?;
    } else {
        // In the fragment, which a browser does not send.
        let token = token.map(|token| format!("#t={token}"));
        output::print(&format!("open {url}{}\n", token.unwrap_or_default()))?;
    }
    let server = bound.server.mount(page.routes()).mount_open(page.files());
    let mut ended = None;
    let stop = async {
        ended = Some(signals.next_ending().await);
        page.close();
    };
    let serve = bound
        .listener
        .serve(server.router(), Limits::default(), stop);
    tokio::select! {
        () = serve => {}
        () = page.watch() => {}
    }
    Err(ended.map_or_else(|| Exit::quiet(0), Exit::by))
}
