//! A strict parser for the XML of the pictures, and the places of their labels.

/// An element with its text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Element {
    pub(crate) name: String,
    attributes: Vec<(String, String)>,
    pub(crate) text: String,
}

impl Element {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(of, _)| of == name);
        found.map(|(_, value)| value.as_str())
    }

    fn number(&self, name: &str) -> f64 {
        self.get(name).map_or(0.0, |value| value.parse().unwrap())
    }
}

/// All elements in order; an error if it is not well-formed.
pub(crate) fn elements(text: &str) -> Result<Vec<Element>, String> {
    let mut done = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (before, tag) = rest.split_once('<').ok_or("text after the end")?;
        match open.last() {
            Some(at) => {
                let text = unescaped(before)?;
                let element: &mut Element = &mut done[*at];
                element.text.push_str(&text);
            }
            None if before.is_empty() && done.is_empty() => {}
            None => return Err(format!("outside of the root: {before:?}")),
        }
        let (tag, after) = tag.split_once('>').ok_or("a tag without an end")?;
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            let at = open.pop().ok_or("an end without a beginning")?;
            if done[at].name != name {
                return Err(format!("</{name}> ends <{}>", done[at].name));
            }
            continue;
        }
        let (tag, closed) = tag
            .strip_suffix('/')
            .map_or((tag, false), |tag| (tag, true));
        done.push(element(tag)?);
        if !closed {
            open.push(done.len() - 1);
        }
    }
    if open.is_empty() {
        Ok(done)
    } else {
        Err("not all is closed".into())
    }
}

fn element(tag: &str) -> Result<Element, String> {
    let (name, mut rest) = tag.split_once(' ').unwrap_or((tag, ""));
    if name.is_empty() || !name.chars().all(char::is_alphanumeric) {
        return Err(format!("an element {name:?}"));
    }
    let mut element = Element {
        name: name.into(),
        ..Element::default()
    };
    while !rest.trim().is_empty() {
        let (name, after) = rest
            .trim_start()
            .split_once("=\"")
            .ok_or_else(|| format!("{rest:?}"))?;
        let (value, after) = after.split_once('"').ok_or_else(|| format!("{after:?}"))?;
        if element.get(name).is_some()
            || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        {
            return Err(format!("an attribute {name:?} in <{tag}>"));
        }
        element.attributes.push((name.into(), unescaped(value)?));
        rest = after;
    }
    Ok(element)
}

fn unescaped(text: &str) -> Result<String, String> {
    let mut parts = text.split('&');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, after) = part
            .split_once(';')
            .ok_or_else(|| format!("a bare & in {text:?}"))?;
        plain.push(match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "#39" => '\'',
            _ => return Err(format!("&{name};")),
        });
        plain.push_str(after);
    }
    Ok(plain)
}

/// The box of a text: left, top, right, bottom.
#[derive(Debug, Clone)]
pub(crate) struct Label {
    pub(crate) text: String,
    pub(crate) edges: [f64; 4],
}

impl Label {
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let ([left, top, right, bottom], [a, b, c, d]) = (self.edges, other.edges);
        left < c && a < right && top < d && b < bottom
    }
}

/// The boxes of the texts in a picture, as if each character were 0.6 em wide.
pub(crate) fn labels(elements: &[Element]) -> Vec<Label> {
    let texts = elements.iter().filter(|element| element.name == "text");
    texts
        .map(|element| {
            let (x, y, size) = (
                element.number("x"),
                element.number("y"),
                element.number("font-size"),
            );
            let characters = u32::try_from(element.text.chars().count()).unwrap();
            let wide = f64::from(characters) * 0.6 * size;
            let left = match element.get("text-anchor") {
                Some("middle") => x - wide / 2.0,
                Some("end") => x - wide,
                _ => x,
            };
            // Letters reach from 0.76 em above the line to 0.22 em below.
            Label {
                text: element.text.clone(),
                edges: [left, y - 0.76 * size, left + wide, y + 0.22 * size],
            }
        })
        .collect()
}
