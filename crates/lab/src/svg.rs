//! The SVG elements of the pictures; all texts are escaped.

/// The fonts of a sentence: those that a system has.
pub(crate) const SANS: &str =
    "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif";

/// A picture under construction.
#[derive(Debug, Default)]
pub(crate) struct Svg(String);

impl Svg {
    /// An empty picture on white, with `title` and `description` for screen readers.
    pub(crate) fn on_white(size: (f64, f64), title: &str, description: &str) -> Self {
        let (width, height) = size;
        let mut svg = Self::default();
        svg.add(&format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" font-family="{SANS}">"#
        ));
        svg.add(&format!("<title>{}</title>", escaped(title)));
        svg.add(&format!("<desc>{}</desc>", escaped(description)));
        svg.add(&format!(
            r#"<rect width="{width}" height="{height}" rx="6" fill="white"/>"#
        ));
        svg
    }

    /// Adds an element unchanged.
    pub(crate) fn add(&mut self, element: &str) {
        self.0.push_str(element);
        self.0.push('\n');
    }

    /// A text at the left end of its baseline, unless `attributes` say otherwise.
    pub(crate) fn text(&mut self, at: (f64, f64), attributes: &str, text: &str) {
        let text = escaped(text);
        self.add(&format!(
            r#"<text x="{:.1}" y="{:.1}" {attributes}>{text}</text>"#,
            at.0, at.1
        ));
    }

    /// A thin line.
    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str) {
        self.styled_line(from, to, &format!(r#"stroke="{colour}""#));
    }

    /// A line of any style.
    pub(crate) fn styled_line(&mut self, from: (f64, f64), to: (f64, f64), attributes: &str) {
        self.add(&format!(
            r#"<line x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}" {attributes}/>"#,
            from.0, from.1, to.0, to.1
        ));
    }

    /// A rectangle by its upper left corner and its size.
    pub(crate) fn rect(&mut self, at: (f64, f64), size: (f64, f64), attributes: &str) {
        self.add(&format!(
            r#"<rect x="{:.1}" y="{:.1}" width="{:.1}" height="{:.1}" {attributes}/>"#,
            at.0, at.1, size.0, size.1
        ));
    }

    /// The complete picture.
    pub(crate) fn end(mut self) -> String {
        self.add("</svg>");
        self.0
    }
}

/// Escapes a text for an element or an attribute. XML has no control characters, not even escaped.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_cannot_become_elements() {
        assert_eq!(
            escaped("a<b> & \"c\" 'd'\u{1b}"),
            "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;\u{fffd}"
        );
        let mut svg = Svg::on_white((1.0, 1.0), "<t>", "&");
        svg.text((0.0, 0.0), "", "</svg>");
        let text = svg.end();
        assert!(
            text.contains("<title>&lt;t&gt;</title>") && text.contains("<desc>&amp;</desc>"),
            "{text}"
        );
        assert_eq!(text.matches("</svg>").count(), 1);
    }
}
