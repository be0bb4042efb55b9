//! The bounds of a rung's exploration, which each printed verdict names.

use std::fmt;

use crate::ladder::redis::Tick;

/// The bounds of an exploration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RungBounds {
    /// How many clients.
    pub clients: u8,
    /// How often each may get the lock; after a refusal, it retries any number of times.
    pub rounds: u8,
    /// How many ticks pass.
    pub horizon: Tick,
    /// How many clients may die.
    pub crashes: u8,
    /// How many replies may be lost.
    pub losses: u8,
    /// How many commands or replies may be delayed; or [`RungBounds::ANY`].
    pub delays: u8,
    /// Whether a client may abandon a delayed command, which may still arrive.
    pub may_give_up: bool,
    /// How many servers may lose their data.
    pub restarts: u8,
    /// How many clocks may jump.
    pub jumps: u8,
}

impl RungBounds {
    /// No limit.
    pub const ANY: u8 = u8::MAX;

    /// So many clients, each with so many acquisitions, and so many ticks, without faults.
    pub const fn calm(clients: u8, rounds: u8, horizon: Tick) -> Self {
        Self {
            clients,
            rounds,
            horizon,
            crashes: 0,
            losses: 0,
            delays: 0,
            may_give_up: false,
            restarts: 0,
            jumps: 0,
        }
    }
}

impl fmt::Display for RungBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let acquisitions = count(self.rounds.into(), "acquisition");
        write!(
            f,
            "{} with {acquisitions} each, ",
            count(self.clients.into(), "client")
        )?;
        write!(f, "{}", count(self.horizon, "tick"))?;
        for (most, what) in [
            (self.crashes, "crash"),
            (self.losses, "lost reply"),
            (self.delays, "delayed command or answer"),
            (self.restarts, "empty restart"),
            (self.jumps, "clock jump"),
        ] {
            match most {
                0 => {}
                Self::ANY => write!(f, ", any {what}")?,
                _ => write!(f, ", {}", count(most.into(), what))?,
            }
        }
        if self.may_give_up {
            write!(f, ", given up or not")?;
        }
        Ok(())
    }
}

fn count(number: Tick, what: &str) -> String {
    match (number, what) {
        (1, _) => format!("1 {what}"),
        (_, "crash") => format!("{number} crashes"),
        (_, "lost reply") => format!("{number} lost replies"),
        (_, "delayed command or answer") => format!("{number} delayed commands or answers"),
        _ => format!("{number} {what}s"),
    }
}
