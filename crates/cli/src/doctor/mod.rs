//! `leasehold doctor`: checks whether a store is fit for locks. It changes nothing but a scratch lock, of which only the fence
//! counter stays.

mod args;
mod print;

use leasehold::Error;
use leasehold::doctor::Examination;

pub(crate) use self::args::Doctor;
use crate::diagnosis::{Report, State, diagnose};
use crate::exit::{CONFIG, Exit, next_step};
use crate::session::in_runtime;
use crate::{messages, output};

/// Examines, and says what was found.
pub(crate) fn doctor(args: &Doctor) -> Exit {
    examined(args).unwrap_or_else(|exit| exit)
}

fn examined(args: &Doctor) -> Result<Exit, Exit> {
    let target = args.store.target()?;
    let ttl = target.ttl(args.ttl)?;
    let how = Examination::new(ttl)
        .quick(args.quick || args.acl)
        .keys(&args.keys);
    let mut report = in_runtime(async {
        let examined = target.examine(&how).await;
        examined.map(diagnose).map_err(|error| unexamined(&error))
    })?;
    if args.acl {
        return acl(&report);
    }
    for id in &args.ignore {
        if report.findings.iter().all(|finding| finding.id != id) {
            messages::say(&format!(
                "warning: --ignore {}: no such check was made; `leasehold doctor --all` lists them",
                messages::quoted(id)
            ));
        }
    }
    report
        .findings
        .retain(|finding| !args.ignore.iter().any(|id| id == finding.id));
    let code = verdict(&report, args);
    tell(&if args.json {
        print::json(&report, args, ttl, code)
    } else {
        print::text(&report, args, ttl, code)
    });
    Ok(Exit::quiet(code))
}

fn tell(text: &str) {
    // A reader that stops early (`leasehold doctor | head -1`) has the exit code.
    let _read: std::io::Result<()> = output::write(text.as_bytes());
}

/// The code for what was found.
fn verdict(report: &Report, args: &Doctor) -> u8 {
    let worst = report
        .findings
        .iter()
        .map(|finding| finding.state(args.purpose.into()))
        .max();
    let bad = if args.strict {
        State::Warn
    } else {
        State::Fail
    };
    if worst >= Some(bad) { CONFIG } else { 0 }
}

fn acl(report: &Report) -> Result<Exit, Exit> {
    let Some(line) = &report.acl else {
        return Err(Exit::saying(
            CONFIG,
            format!(
                "{} has no users of its own, so there is no ACL line (exit {CONFIG})",
                report.store
            ),
        ));
    };
    tell(&format!("{line}\n"));
    Ok(Exit::quiet(0))
}

/// There is nothing to judge.
fn unexamined(error: &Error) -> Exit {
    let Error::Store(store) = error else {
        return error.clone().into();
    };
    let (code, advice) = next_step(store);
    Exit::saying(
        code,
        format!(
            "{} (exit {code})\n    There was nothing to examine.\n    next    {advice}",
            messages::without_passwords(&store.to_string())
        ),
    )
}
