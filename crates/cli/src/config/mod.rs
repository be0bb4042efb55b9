//! Settings from environment variables and configuration files. Values may be secrets and are never shown. The
//! current directory has no influence.
//!
//! Settings have layers: the command line, the environment, the user's file, the host's file, and last
//! `REDIS_URL`. For each setting, the first layer that has it wins.

mod file;
mod setting;

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use self::file::{Missing, read};
pub(crate) use self::setting::{
    KEY_TEMPLATE, NAMESPACE, Origin, PASSWORD_FILE, RELATIVE, REQUEST_TIMEOUT, TLS, TLS_CA,
    TLS_CERT, TLS_KEY, TLS_NAME, TLS_PIN, TTL, URL, URL_FILE, Value, is_file, option,
};
use self::setting::{KEYS, Layer};
use crate::exit::{CONFIG, Exit, exit};
use crate::inherited_store;

/// Many platforms set this variable. It may name a cache, so it comes last.
pub(crate) const REDIS_URL: &str = "REDIS_URL";

/// Set by a run without a namespace or key template, to the URL or URL file that it passes on. For this store,
/// the command ignores these settings of files.
const NONE: [(&str, &str); 2] = [
    (NAMESPACE, "LEASEHOLD_NO_NAMESPACE"),
    (KEY_TEMPLATE, "LEASEHOLD_NO_KEY_TEMPLATE"),
];

/// The configuration file of the host.
pub(crate) const HOST_FILE: &str = "/etc/leasehold.toml";

/// All settings, with the strongest layer first.
pub(crate) struct Settings(Vec<Layer>);

impl Settings {
    /// Collects the settings. `file` replaces the files of the user and the host.
    pub(crate) fn load(typed: Typed, file: Option<&Path>) -> Result<Self, Exit> {
        Self::gather(typed, |name| env::var_os(name), file)
    }

    fn gather(
        typed: Typed,
        variable: impl Fn(&str) -> Option<OsString>,
        file: Option<&Path>,
    ) -> Result<Self, Exit> {
        // An empty variable counts as unset.
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let named = |key, name| Some((key, (variable(name)?, Origin::Variable(name))));
        let mut variables: Layer = KEYS
            .into_iter()
            .filter_map(|(key, name)| named(key, name))
            .collect();
        if let (Some(_), Some((file, _))) = (variables.get(URL), variables.get(URL_FILE))
            && inherited_store::is_run_url_file(Path::new(file))
        {
            // A URL that was set inside the run overrides the run's own URL file.
            variables.remove(URL_FILE);
        }
        let named_here = [&typed.0, &variables]
            .iter()
            .any(|layer| layer.contains_key(URL) || layer.contains_key(URL_FILE));
        if let (false, Some(why)) = (named_here, variable(inherited_store::WITHHELD)) {
            return Err(withheld(&why.to_string_lossy()));
        }
        let hidden = NONE.map(|(key, marker)| (key, variable(marker)));
        let mut layers = vec![typed.0, variables];
        if let Some(chosen) = file {
            layers.push(read(chosen, Missing::IsAnError)?);
        } else {
            let files = [user_file(variable), Some(HOST_FILE.into())];
            for path in files.into_iter().flatten() {
                layers.push(read(&path, Missing::IsNone)?);
            }
        }
        layers.push(named(URL, REDIS_URL).into_iter().collect());
        let mut this = Self(layers);
        if file.is_none() {
            this.hide(hidden);
        }
        Ok(this)
    }

    /// Removes the naming settings of files that an outer run does not have, if its store is used here.
    fn hide(&mut self, hidden: [(&'static str, Option<OsString>); 2]) {
        // A conflict of two settings is refused later.
        let Ok(Some((_, store))) = self.either(URL, URL_FILE) else {
            return;
        };
        if !matches!(store.origin, Origin::Variable(name) if name != REDIS_URL) {
            return;
        }
        for (key, of_store) in hidden {
            if of_store.as_ref() == Some(&store.raw) {
                for layer in self.0.iter_mut().skip(2) {
                    layer.remove(key);
                }
            }
        }
    }

    /// The variables that mark naming settings as absent.
    pub(crate) fn without(&self) -> Vec<&'static str> {
        let missing = NONE.into_iter().filter(|(key, _)| self.get(key).is_none());
        missing.map(|(_, marker)| marker).collect()
    }

    /// A setting, from the first layer that has it.
    pub(crate) fn get(&self, key: &'static str) -> Option<Value> {
        (0..self.0.len()).find_map(|level| self.at(level, key))
    }

    /// One of two alternative settings, from the first layer that has either. A layer with both is refused.
    pub(crate) fn either(
        &self,
        key: &'static str,
        other: &'static str,
    ) -> Result<Option<(&'static str, Value)>, Exit> {
        for level in 0..self.0.len() {
            match (self.at(level, key), self.at(level, other)) {
                (None, None) => {}
                (Some(value), None) => return Ok(Some((key, value))),
                (None, Some(value)) => return Ok(Some((other, value))),
                (Some(one), Some(two)) => {
                    return Err(one.origin.refuse(format!(
                        "{} is set as well; set only one of them",
                        two.origin
                    )));
                }
            }
        }
        Ok(None)
    }

    fn at(&self, level: usize, key: &'static str) -> Option<Value> {
        let (raw, origin) = self.0.get(level)?.get(key)?.clone();
        Some(Value { origin, level, raw })
    }
}

/// The settings of the command line, the strongest layer.
#[derive(Default)]
pub(crate) struct Typed(Layer);

impl Typed {
    /// Adds the value of the option for `key`, if given.
    pub(crate) fn with(mut self, key: &'static str, value: Option<impl AsRef<OsStr>>) -> Self {
        if let Some(value) = value {
            let option = Origin::Typed(option(key));
            self.0.insert(key, (value.as_ref().to_owned(), option));
        }
        self
    }
}

/// The exit if the outer run could not pass its store on. No other store may take its place.
fn withheld(why: &str) -> Exit {
    exit!(
        CONFIG,
        "the store of the outer leasehold is not known here (exit {CONFIG})\n    Its URL has a password, so it is passed in a file, which could not be written:\n    {}\n    next    set XDG_RUNTIME_DIR or TMPDIR to a directory of this user, or give the URL with --url-file FILE",
        why.escape_debug()
    )
}

/// The configuration file of the user, if a home directory is known.
pub(crate) fn user_file(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // The XDG specification says to ignore relative paths.
    let absolute = |name: &str| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let directory =
        absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(directory.join("leasehold/config.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(typed: Typed, variables: &[(&str, &str)], file: Option<&Path>) -> Settings {
        let variable = |name: &str| {
            let found = variables.iter().find(|(set, _)| *set == name);
            found.map(|(_, value)| value.into())
        };
        Settings::gather(typed, variable, file).unwrap_or_else(|exit| panic!("{exit:?}"))
    }

    #[test]
    fn the_strongest_layer_wins_for_each_setting() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("leasehold/config.toml");
        std::fs::create_dir(file.parent().unwrap()).unwrap();
        std::fs::write(
            &file,
            "ttl = \"4s\"\nnamespace = \"file\"\nurl = \"u:file\"",
        )
        .unwrap();
        let home = home.path().to_str().unwrap();
        let found = settings(
            Typed::default().with(NAMESPACE, Some("typed")),
            &[
                ("XDG_CONFIG_HOME", home),
                ("LEASEHOLD_NAMESPACE", "variable"),
                ("LEASEHOLD_TTL", ""),
                ("LEASEHOLD_URL_FILE", "/variable"),
                ("REDIS_URL", "u:last"),
            ],
            None,
        );
        let text = |key| found.get(key).unwrap().text().unwrap().to_owned();
        assert_eq!(text(NAMESPACE), "typed");
        assert_eq!(text(TTL), "4s");
        let (key, _) = found.either(URL, URL_FILE).unwrap().unwrap();
        assert_eq!(key, URL_FILE);
        assert_eq!(
            found.get(URL).unwrap().origin,
            Origin::File {
                path: file,
                line: 3,
                key: URL
            }
        );
    }

    #[test]
    fn redis_url_comes_last_and_two_of_one_layer_are_refused() {
        let empty = Path::new("/dev/null");
        let found = settings(Typed::default(), &[("REDIS_URL", "u:last")], Some(empty));
        let (_, value) = found.either(URL, URL_FILE).unwrap().unwrap();
        assert_eq!(value.origin, Origin::Variable("REDIS_URL"));

        let both = [("LEASEHOLD_URL", "u:S3CR3T"), ("LEASEHOLD_URL_FILE", "/f")];
        let found = settings(Typed::default(), &both, Some(empty));
        let Err(exit) = found.either(URL, URL_FILE) else {
            panic!("both were taken")
        };
        let said = format!("{exit:?}");
        assert!(
            said.contains("LEASEHOLD_URL: LEASEHOLD_URL_FILE") && !said.contains("S3CR3T"),
            "{said}"
        );
        // The command line overrides both.
        let typed = Typed::default().with(URL, Some("u:typed"));
        let found = settings(typed, &both, Some(empty));
        assert_eq!(found.either(URL, URL_FILE).unwrap().unwrap().1.level, 0);
    }

    #[test]
    fn the_users_file_is_where_xdg_says() {
        for (variables, path) in [
            (
                [("XDG_CONFIG_HOME", "/x"), ("HOME", "/h")].as_slice(),
                Some("/x/leasehold/config.toml"),
            ),
            (
                &[("XDG_CONFIG_HOME", "x"), ("HOME", "/h")],
                Some("/h/.config/leasehold/config.toml"),
            ),
            (&[("HOME", "h")], None),
        ] {
            let variable = |name: &str| {
                let found = variables.iter().find(|(set, _)| *set == name);
                found.map(|(_, value)| value.into())
            };
            assert_eq!(user_file(variable), path.map(PathBuf::from));
        }
    }
}
