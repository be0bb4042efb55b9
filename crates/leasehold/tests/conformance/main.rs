//! The promises of the library, on every store. For a new store, add one line to `common::on_every_store`.

#[path = "../common/mod.rs"]
mod common;
mod detaching;
mod electing;
mod facade;
mod holding;
mod input;
mod kinds;
mod once;
mod several;
mod sharing;
mod waiting;
