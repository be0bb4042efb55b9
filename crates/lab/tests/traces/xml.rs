//! A strict parser for the XML of the pictures, and the places of their labels.

use std::collections::BTreeMap;

/// An element, and the text behind its first tag.
pub(crate) struct Element {
    pub(crate) name: String,
    attributes: BTreeMap<String, String>,
    pub(crate) text: String,
}

impl Element {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> f64 {
        self.get(name).unwrap().parse().unwrap()
    }
}

/// All elements in order; an error if it is not well-formed.
pub(crate) fn elements(svg: &str) -> Result<Vec<Element>, String> {
    let mut all: Vec<Element> = Vec::new();
    let mut open: Vec<String> = Vec::new();
    for part in svg.trim().split('<').skip(1) {
        if open.is_empty() && !all.is_empty() {
            return Err(format!("behind the root: {part:?}"));
        }
        let (tag, text) = part.split_once('>').ok_or("a tag without an end")?;
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop().as_deref() != Some(name) {
                return Err(format!("</{name}> ends another element"));
            }
        } else {
            let bare = tag.strip_suffix('/').unwrap_or(tag);
            let element = element(bare, text)?;
            if bare == tag {
                open.push(element.name.clone());
            }
            all.push(element);
        }
        if open.is_empty() && !text.is_empty() {
            return Err(format!("outside of the root: {text:?}"));
        }
    }
    open.pop()
        .map_or(Ok(all), |name| Err(format!("<{name}> does not end")))
}

fn element(tag: &str, text: &str) -> Result<Element, String> {
    let (name, mut rest) = tag.split_once(' ').unwrap_or((tag, ""));
    let mut attributes = BTreeMap::new();
    while let Some((name, after)) = rest.trim_start().split_once("=\"") {
        let (value, after) = after.split_once('"').ok_or(after)?;
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        let is_known = attributes
            .insert(name.to_owned(), unescaped(value)?)
            .is_some();
        if is_known || !is_name {
            return Err(format!("an attribute {name:?} in <{tag}>"));
        }
        rest = after;
    }
    if name.is_empty() || !name.chars().all(char::is_alphanumeric) || !rest.trim().is_empty() {
        return Err(format!("an element <{tag}>"));
    }
    Ok(Element {
        name: name.into(),
        attributes,
        text: unescaped(text)?,
    })
}

fn unescaped(text: &str) -> Result<String, String> {
    let plain = text.replace("&lt;", "<").replace("&gt;", ">");
    let plain = plain.replace("&amp;", "\0");
    if plain.contains('&') {
        return Err(format!("a bare & in {text:?}"));
    }
    Ok(plain.replace('\0', "&"))
}

/// The box of a text: left, top, right, bottom.
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
            let [left, y, size] = ["x", "y", "font-size"].map(|name| element.number(name));
            let characters = u32::try_from(element.text.chars().count()).unwrap();
            let right = left + f64::from(characters) * 0.6 * size;
            // Letters reach from 0.76 em above the line to 0.22 em below.
            Label {
                text: element.text.clone(),
                edges: [left, y - 0.76 * size, right, y + 0.22 * size],
            }
        })
        .collect()
}
