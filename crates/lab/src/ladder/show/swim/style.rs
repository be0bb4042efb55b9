//! Fonts, text widths and colours. Colour is never the only sign.

use crate::text::columns;

/// The width of a character per unit of font size: exact for monospace, an upper estimate for other text.
pub(super) const EM: f64 = 0.6;
pub(super) const CODE: f64 = 11.5;
pub(super) const SENTENCE: f64 = 11.5;
pub(super) const MONO: &str = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";
pub(super) const INK: &str = "#1f2430";
pub(super) const FAINT: &str = "#6b7280";
pub(super) const RULE: &str = "#d4d8e0";
pub(super) const WRONG: &str = "#c0182f";

/// The greatest width of a text.
pub(super) fn wide(text: &str, size: f64) -> f64 {
    length(columns(text)) * EM * size
}

/// A count as a length.
pub(super) fn length(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

/// The colour of a client: distinct for colour-blind readers, and never the only sign.
pub(super) fn colour(client: u8) -> &'static str {
    ["#0b65b0", "#8a3fa0", "#00755e", "#8a5a00"][usize::from(client) % 4]
}
