//! The results of the models, for people and for programs: as a table, a picture, JSON, and a list of all rungs. Each verdict
//! is shown with its bounds.

mod json;
mod list;
mod picture;
mod steps;
mod summary;
mod table;

pub use self::json::{list as list_json, one as json};
pub use self::list::list;
pub use self::picture::svg;
pub use self::summary::{ModelOutcome, RungSummary};
pub use self::table::table;
