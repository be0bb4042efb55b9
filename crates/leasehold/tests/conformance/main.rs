//! What the library promises, on every store. A new store is one more line in `common::on_every_store`.

#[path = "../common/mod.rs"]
mod common;
mod detaching;
mod facade;
mod holding;
mod input;
mod sharing;
mod waiting;
