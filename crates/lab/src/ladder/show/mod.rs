//! The results of the models, for people and for programs: as a table, a picture, JSON, and a list of all rungs. Each verdict
//! is shown with its bounds.

mod json;
mod pages;
mod picture;
mod steps;

pub use self::json::{list as list_json, one as json};
pub use self::pages::{list, table};
pub use self::picture::svg;
