//! Cache entries of a store: their steps, and the notices of their changes. A store executes steps of `leasehold_core::cache` atomically;
//! the rules are core's.

use std::sync::{PoisonError, Weak};

use leasehold_core::LockName;

use super::contract::Notice;
pub use super::contract::{EntryStore, Looked, Taken};
use crate::sync::Mutex;

/// Hears of the entries of a store. Called from any thread; must return at once.
pub trait EntryListener: Send + Sync {
    /// The values of these entries changed. `None` stands for all entries: the client may have missed notices, or will miss some.
    fn changed(&self, keys: Option<&[LockName]>);

    /// Another client's load of this entry ended. `None` stands for all entries: the client may have missed notices.
    fn load_ended(&self, key: Option<&LockName>);
}

/// The listeners of a client.
#[derive(Default)]
pub(crate) struct EntryListeners(Mutex<Vec<Weak<dyn EntryListener>>>);

impl EntryListeners {
    /// Adds a listener, for as long as it lives.
    pub(crate) fn add(&self, listener: Weak<dyn EntryListener>) {
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(listener);
    }

    /// Tells the listeners that the client itself has changed this entry, or may have.
    pub(crate) fn changed(&self, key: &LockName) {
        self.tell(|listener| listener.changed(Some(std::slice::from_ref(key))));
    }

    /// Tells the listeners what a notice means for entries. Returns whether it is about entries only.
    pub(crate) fn hear(&self, notice: &Notice) -> bool {
        match notice {
            Notice::LoadEnded { key } => {
                let key = LockName::from_key(key);
                self.tell(|listener| listener.load_ended(Some(&key)));
            }
            Notice::Changed { keys } => {
                let names = |keys: &Vec<String>| -> Vec<LockName> {
                    keys.iter().map(|key| LockName::from_key(key)).collect()
                };
                let keys = keys.as_ref().map(names);
                self.tell(|listener| listener.changed(keys.as_deref()));
            }
            // The client misses notices from here on.
            Notice::Cut { .. } => {
                self.tell(|listener| listener.changed(None));
                return false;
            }
            // The client missed the notices meanwhile.
            Notice::Reconnected { .. } | Notice::Missed => {
                self.tell(|listener| {
                    listener.changed(None);
                    listener.load_ended(None);
                });
                return false;
            }
            _ => return false,
        }
        true
    }

    fn tell(&self, notice: impl Fn(&dyn EntryListener)) {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let listeners: Vec<_> = state.iter().filter_map(Weak::upgrade).collect();
        // First unlocked: a listener may ask the client.
        drop(state);
        for listener in listeners {
            notice(&*listener);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Default)]
    struct Heard(std::sync::Mutex<Vec<String>>);

    impl EntryListener for Heard {
        fn changed(&self, keys: Option<&[LockName]>) {
            let keys = keys.map(|keys| keys.iter().map(LockName::as_str).collect::<Vec<_>>());
            self.0.lock().unwrap().push(format!("changed {keys:?}"));
        }

        fn load_ended(&self, key: Option<&LockName>) {
            let key = key.map(LockName::as_str);
            self.0.lock().unwrap().push(format!("ended {key:?}"));
        }
    }

    #[test]
    fn a_listener_hears_of_changes_and_of_gaps() {
        let (listeners, heard) = (EntryListeners::default(), Arc::<Heard>::default());
        let listener: Weak<Heard> = Arc::downgrade(&heard);
        listeners.add(listener);
        let key = || "a".to_owned();
        for (notice, said, only_entries) in [
            (Notice::LoadEnded { key: key() }, "ended Some(\"a\")", true),
            (
                Notice::Changed {
                    keys: Some(vec![key()]),
                },
                "changed Some([\"a\"])",
                true,
            ),
            (Notice::Changed { keys: None }, "changed None", true),
            (
                Notice::Cut {
                    node: 0,
                    why: "on purpose",
                },
                "changed None",
                false,
            ),
            (
                Notice::Reconnected { node: 0 },
                "changed None, ended None",
                false,
            ),
        ] {
            assert_eq!(listeners.hear(&notice), only_entries, "{notice:?}");
            let heard = std::mem::take(&mut *heard.0.lock().unwrap());
            assert_eq!(heard.join(", "), said, "{notice:?}");
        }
        drop(heard);
        assert!(listeners.hear(&Notice::LoadEnded { key: key() }));
    }
}
