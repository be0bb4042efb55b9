//! Patterns of lock names: `*` matches any text, `?` any one character, `\` makes the next one literal. Matching
//! takes at most time proportional to the product of both lengths.

/// A pattern or a single name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// A single name.
    Name(String),
    /// A pattern with wildcards.
    Any(Vec<Part>),
}

/// An element of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Is(char),
    One,
    Many,
}

impl Pattern {
    /// Parses a pattern. A final backslash is literal.
    pub(crate) fn new(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            parts.push(match c {
                '*' => Part::Many,
                '?' => Part::One,
                '\\' => Part::Is(rest.next().unwrap_or('\\')),
                c => Part::Is(c),
            });
        }
        let literal = parts.iter().map(|part| match part {
            Part::Is(c) => Some(*c),
            Part::One | Part::Many => None,
        });
        match literal.collect::<Option<String>>() {
            Some(name) => Self::Name(name),
            None => Self::Any(parts),
        }
    }

    /// True if the pattern matches `name`.
    pub(crate) fn matches(&self, name: &str) -> bool {
        match self {
            Self::Name(only) => only == name,
            Self::Any(parts) => {
                let name: Vec<char> = name.chars().collect();
                is_match(parts, &name)
            }
        }
    }
}

/// Matches greedily: the last `*` takes as little as possible, and one character more after each failure.
fn is_match(parts: &[Part], name: &[char]) -> bool {
    let (mut part, mut at) = (0, 0);
    let mut retry = None;
    while at < name.len() {
        match parts.get(part) {
            Some(Part::Many) => {
                part += 1;
                retry = Some((part, at));
            }
            Some(Part::One) => (part, at) = (part + 1, at + 1),
            Some(Part::Is(c)) if *c == name[at] => (part, at) = (part + 1, at + 1),
            _ => match retry {
                Some((after, taken)) => {
                    (part, at) = (after, taken + 1);
                    retry = Some((after, taken + 1));
                }
                None => return false,
            },
        }
    }
    parts[part..].iter().all(|part| *part == Part::Many)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_match() {
        for (pattern, name, matches) in [
            ("*", "", true),
            ("*", "any:thing/at all", true),
            ("cart:*", "cart:9", true),
            ("cart:*", "cart", false),
            ("*:9", "cart:9", true),
            ("*:9", "cart:99", false),
            ("c*t*9", "cart:cat:9", true),
            ("c*t*9", "cart:cat:", false),
            ("c?rt", "cart", true),
            ("c?rt", "cärt", true),
            ("c?rt", "crt", false),
            ("?", "", false),
            ("**a**", "bab", true),
            (r"a\*?", "a*b", true),
            (r"a\*?", "axb", false),
            ("x", "x", true),
            ("x", "xy", false),
            (r"a\*", "a*", true),
            (r"a\", r"a\", true),
        ] {
            assert_eq!(
                Pattern::new(pattern).matches(name),
                matches,
                "{pattern} {name}"
            );
        }
        assert_eq!(Pattern::new(r"a\?"), Pattern::Name("a?".into()));
    }

    #[test]
    fn a_pattern_made_to_be_slow_is_not() {
        let name = "a".repeat(512);
        assert!(
            !Pattern::new(&"a*".repeat(200)).matches(&(name.clone() + "b")[1..].replace('a', "c"))
        );
        assert!(!Pattern::new(&("*a".repeat(200) + "b")).matches(&name));
    }
}
