//! Namespaces and key templates: the text around a lock's name in its key. Names of one client never share a key, and all keys
//! of a name are in one slot of a cluster.

use std::sync::Arc;

use crate::invalid::Invalid;
use crate::name::LockName;

/// A prefix for every lock of a client: 1 to 128 bytes, no control characters, no braces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// Checks the rules above.
    ///
    /// # Errors
    /// [`Invalid`], naming the input.
    pub fn new(text: &str) -> Result<Self, Invalid> {
        const WHAT: &str = "namespace";
        if text.is_empty() || text.len() > 128 {
            return Err(Invalid::new(
                WHAT,
                text,
                format!("must be 1 to 128 bytes, is {}", text.len()),
            ));
        }
        if text.chars().any(|c| c.is_control() || c == '{' || c == '}') {
            return Err(Invalid::new(
                WHAT,
                text,
                "must not hold control characters or braces",
            ));
        }
        Ok(Self(text.into()))
    }

    /// The prefix, without its colon.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The key of a lock as other programs write it, with `{}` for its name: `lock:{}`. 2 to 128 bytes, `{}` exactly once, no other
/// braces, no control characters.
///
/// It goes around the namespace: `x` within the namespace `prod` has the key `lock:prod:x`. A hash tag belongs in the name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyTemplate {
    text: Arc<str>,
    /// Where `{}` begins.
    at: usize,
}

/// The place of the name.
const PLACE: &str = "{}";

impl KeyTemplate {
    /// Checks the rules above.
    ///
    /// # Errors
    /// [`Invalid`], naming the input.
    pub fn new(text: &str) -> Result<Self, Invalid> {
        let refuse = |why: String| Err(Invalid::new("key template", text, why));
        if text.len() > 128 {
            return refuse(format!("must be at most 128 bytes, is {}", text.len()));
        }
        if text.chars().any(char::is_control) {
            return refuse("must not hold control characters".into());
        }
        let Some(at) = text.find(PLACE) else {
            return refuse("must say where the name stands, as in lock:{}".into());
        };
        let template = Self {
            text: text.into(),
            at,
        };
        if template.before().contains(['{', '}']) || template.after().contains(['{', '}']) {
            return refuse(
                "must have {} once and no other braces; a hash tag belongs in the name".into(),
            );
        }
        // Keys with these suffixes belong to other locks, so every name would be refused.
        if LockName::between(template.before(), "name", template.after()).is_err() {
            return refuse("ends like a key that locks keep beside them".into());
        }
        Ok(template)
    }

    /// The template as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn before(&self) -> &str {
        &self.text[..self.at]
    }

    fn after(&self) -> &str {
        &self.text[self.at + PLACE.len()..]
    }
}

/// The mapping between the names of a client and its keys.
#[derive(Debug, Clone, Default)]
pub struct Naming {
    before: String,
    after: String,
}

impl Naming {
    /// The template around the namespace around the name; by default the key is the name.
    pub fn new(template: Option<&KeyTemplate>, namespace: Option<&Namespace>) -> Self {
        let (before, after) = template.map_or(("", ""), |t| (t.before(), t.after()));
        let within = namespace.map_or(String::new(), |namespace| format!("{}:", namespace.0));
        Self {
            before: before.to_owned() + &within,
            after: after.to_owned(),
        }
    }

    /// Checks a name.
    ///
    /// # Errors
    /// [`Invalid`], naming the input and the rule it breaks.
    pub fn name(&self, name: &str) -> Result<LockName, Invalid> {
        LockName::between(&self.before, name, &self.after)
    }

    /// The name that has this key; `None` if no name of this client has it.
    pub fn name_in<'key>(&self, key: &'key str) -> Option<&'key str> {
        let name = key
            .strip_prefix(&*self.before)?
            .strip_suffix(&*self.after)?;
        self.name(name).is_ok().then_some(name)
    }

    /// The Redis pattern for the keys of all names that match the pattern `names`. Namespace and template are matched literally;
    /// a character of them that is special in a pattern, or ends a word of `redis-cli`, is matched by `?`.
    pub fn pattern(&self, names: &str) -> String {
        let means_more = |c: char| c.is_ascii_whitespace() || r#"*?[]\"'"#.contains(c);
        let literal = |text: &str| text.replace(means_more, "?");
        [&literal(&self.before), names, &literal(&self.after)].concat()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::RESERVED_SUFFIXES;

    fn naming(template: Option<&str>, namespace: Option<&str>) -> Naming {
        let template = template.map(|text| KeyTemplate::new(text).unwrap());
        let namespace = namespace.map(|text| Namespace::new(text).unwrap());
        Naming::new(template.as_ref(), namespace.as_ref())
    }

    #[test]
    fn a_namespace_is_a_prefix_of_the_key_and_not_of_the_name() {
        let name = naming(None, Some("prod")).name("{user}:42").unwrap();
        assert_eq!((name.as_str(), name.key()), ("{user}:42", "prod:{user}:42"));
        // A store keeps one lock per key, however the key was composed.
        assert_eq!(name, LockName::new("prod:{user}:42").unwrap());
        assert_eq!(name, LockName::from_key(name.key()));
        naming(None, Some("leasehold")).name("index").unwrap_err();
        for bad in ["", "a{", "a\n", &"n".repeat(129)] {
            Namespace::new(bad).unwrap_err();
        }
    }

    #[test]
    fn a_template_stands_around_the_namespace_and_the_name() {
        for (template, namespace, name, key, fence) in [
            (None, None, "x", "x", "{x}:lh-fence"),
            (Some("{}"), None, "x", "x", "{x}:lh-fence"),
            (Some("lock:{}"), None, "x", "lock:x", "{lock:x}:lh-fence"),
            (Some("a:{}:b"), None, "x", "a:x:b", "{a:x:b}:lh-fence"),
            (
                Some("lock:{}"),
                Some("prod"),
                "x",
                "lock:prod:x",
                "{lock:prod:x}:lh-fence",
            ),
            (
                Some("lock:{}"),
                None,
                "{u}:4",
                "lock:{u}:4",
                "lock:{u}:4:lh-fence",
            ),
        ] {
            let naming = naming(template, namespace);
            let lock = naming.name(name).unwrap();
            assert_eq!((lock.as_str(), lock.key()), (name, key));
            assert_eq!(lock.beside(":lh-fence"), fence);
            assert_eq!(naming.name_in(key), Some(name));
        }
        assert_eq!(naming(Some("lock:{}"), None).name_in("mutex:x"), None);
        assert_eq!(naming(Some("a:{}:b"), None).name_in("a:x:c"), None);
        assert_eq!(naming(Some("lock:{}"), None).name_in("lock:"), None);
        // A key of another client, which no name of this client has.
        assert_eq!(naming(Some("lock:{}"), None).name_in("lock:{u}"), None);
        assert_eq!(naming(None, None).name_in("x:lh-fence"), None);
    }

    #[test]
    fn template_that_splits_or_shares_keys_is_refused_and_named() {
        let long = format!("{}{{}}", "x".repeat(127));
        for bad in [
            "",
            "lock:",
            "{lock}:",
            "{}{}",
            "{}:{}",
            "{{}}",
            "{a}:{}",
            "a}{}",
            "a\n{}",
            "{}:lh-fence",
            &long,
        ] {
            assert_eq!(
                KeyTemplate::new(bad).unwrap_err().what,
                "key template",
                "{bad}"
            );
        }
        // If only some names make the key invalid, the name is refused.
        naming(Some("{}fence"), None).name("x:lh-").unwrap_err();
        naming(Some("leasehold:{}"), None)
            .name("index")
            .unwrap_err();
        naming(Some("lock:{}"), None).name("x").unwrap();
    }

    #[test]
    fn a_pattern_of_names_becomes_one_of_keys() {
        for (template, namespace, names, keys) in [
            (None, None, "jobs:*", "jobs:*"),
            (Some("lock:{}"), None, "jobs:*", "lock:jobs:*"),
            (Some("a:{}:b"), Some("prod"), "*", "a:prod:*:b"),
            (Some("[a] {}"), Some("b*"), "[xy]", "?a??b?:[xy]"),
        ] {
            assert_eq!(naming(template, namespace).pattern(names), keys);
        }
    }

    proptest! {
        #[test]
        fn with_a_template_all_keys_of_a_name_share_a_slot(name in "[a-c:{}]{1,8}", template in "[a-c:]{0,3}\\{\\}[a-c:]{0,3}") {
            let naming = naming(Some(&template), None);
            if let Ok(name) = naming.name(&name) {
                for suffix in RESERVED_SUFFIXES {
                    let beside = name.beside(suffix);
                    prop_assert_eq!(hashed(name.key()), hashed(&beside));
                }
            }
        }
    }

    /// What Redis hashes of a key: the first non-empty tag, else all of it.
    fn hashed(key: &str) -> &str {
        let tag = key
            .split_once('{')
            .and_then(|(_, rest)| rest.split_once('}'));
        tag.map_or(key, |(tag, _)| if tag.is_empty() { key } else { tag })
    }
}
