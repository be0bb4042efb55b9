//! What the models found about a rung, for people and for programs: as a table, a picture, JSON, and all rungs as a list.
//! Must never say "safe": what was explored has bounds, and they are said with it.

mod json;
mod list;
mod steps;
mod summary;
mod swim;
mod table;

pub use self::json::{list as list_json, one as json};
pub use self::list::list;
pub use self::summary::{ModelOutcome, RungSummary};
pub use self::swim::svg;
pub use self::table::table;
