//! Names: one meaning for a type's name, test code in its place, short names of tests, one group for a prefix of invariants.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::Visit;
use syn::{ImplItemFn, Item, ItemFn, ItemMod};

use crate::modules::{files, is_test};

/// Names that a crate gives to more than one type, as `crate Name count`. The list only shrinks.
const HOMONYMS: &str = include_str!("homonyms.txt");

/// The longest name of a test, in characters.
const LONGEST: usize = 60;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Rust sources below a folder, with their paths.
fn sources(folder: &Path) -> Vec<(PathBuf, syn::File)> {
    let parsed = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let file =
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path, file)
    };
    files(folder, "rs").into_iter().map(parsed).collect()
}

/// The folders of the workspace's crates that hold sources, by crate.
fn folders() -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(workspace().join("crates")).unwrap() {
        let home = entry.unwrap().path();
        let name = home.file_name().unwrap().to_str().unwrap().to_owned();
        for folder in ["src", "tests", "benches", "examples"] {
            if home.join(folder).exists() {
                found.push((name.clone(), home.join(folder)));
            }
        }
    }
    found
}

/// True if the path belongs to a file of tests.
fn is_in_tests(path: &Path) -> bool {
    path.components().any(|part| {
        let part = part.as_os_str();
        part == "tests" || part == "tests.rs"
    })
}

/// The types that production code declares.
#[derive(Default)]
struct Types(Vec<String>);

impl<'ast> Visit<'ast> for Types {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item(&mut self, item: &'ast Item) {
        let declared = match item {
            Item::Struct(item) => Some((&item.ident, &item.attrs)),
            Item::Enum(item) => Some((&item.ident, &item.attrs)),
            Item::Union(item) => Some((&item.ident, &item.attrs)),
            Item::Trait(item) => Some((&item.ident, &item.attrs)),
            Item::Type(item) => Some((&item.ident, &item.attrs)),
            _ => None,
        };
        if let Some((name, attributes)) = declared
            && !is_test(attributes)
        {
            self.0.push(name.to_string());
        }
        syn::visit::visit_item(self, item);
    }
}

#[test]
fn type_name_has_one_meaning_in_its_crate() {
    let mut counts: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for (name, folder) in folders() {
        if !folder.ends_with("src") {
            continue;
        }
        for (path, file) in sources(&folder) {
            if !is_in_tests(&path) {
                let mut types = Types::default();
                types.visit_file(&file);
                let counts = counts.entry(name.clone()).or_default();
                for declared in types.0 {
                    *counts.entry(declared).or_default() += 1;
                }
            }
        }
    }
    let read: usize = counts.values().map(BTreeMap::len).sum();
    assert!(read > 700, "only {read} types were read");
    let found = counts.iter().flat_map(|(of, counts)| {
        let many = counts.iter().filter(|(_, count)| **count > 1);
        many.map(move |(name, count)| format!("{of} {name} {count}"))
    });
    let found: Vec<String> = found.collect();
    let allowed: Vec<&str> = HOMONYMS.lines().collect();
    let new: Vec<_> = found
        .iter()
        .filter(|line| !allowed.contains(&line.as_str()))
        .collect();
    assert!(new.is_empty(), "give one of them another name: {new:#?}");
    let gone: Vec<_> = allowed
        .iter()
        .filter(|line| !found.contains(&(**line).to_owned()))
        .collect();
    assert!(
        gone.is_empty(),
        "take these lines from homonyms.txt: {gone:#?}"
    );
}

/// The names of tests.
#[derive(Default)]
struct Tests(Vec<String>);

impl<'ast> Visit<'ast> for Tests {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        let is_marked = item.attrs.iter().any(|attribute| {
            let last = attribute.path().segments.last();
            last.is_some_and(|last| last.ident == "test")
        });
        if is_marked {
            self.0.push(item.sig.ident.to_string());
        }
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, _: &'ast ImplItemFn) {}
}

#[test]
fn test_names_are_short() {
    let (mut long, mut read) = (Vec::new(), 0);
    for (_, folder) in folders() {
        for (path, file) in sources(&folder) {
            let mut tests = Tests::default();
            tests.visit_file(&file);
            read += tests.0.len();
            let too_long = tests.0.into_iter().filter(|name| name.len() > LONGEST);
            long.extend(too_long.map(|name| format!("{}: {name}", path.display())));
        }
    }
    assert!(read > 1_000, "only {read} tests were read");
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn test_files_stand_in_tests_folders() {
    let mut misplaced = Vec::new();
    for (_, folder) in folders() {
        if !folder.ends_with("src") {
            continue;
        }
        for (path, file) in sources(&folder) {
            if is_in_tests(&path) {
                continue;
            }
            for item in file.items {
                if let Item::Mod(item) = item
                    && item.content.is_none()
                    && is_test(&item.attrs)
                    && item.ident != "tests"
                {
                    misplaced.push(format!("{}: {}", path.display(), item.ident));
                }
            }
        }
    }
    assert!(misplaced.is_empty(), "{misplaced:#?}");
}

/// The table of invariants in `ARCHITECTURE.md` has one row for each prefix, which names all files that define its numbers.
#[test]
fn invariant_prefix_belongs_to_one_group() {
    let page = fs::read_to_string(workspace().join("ARCHITECTURE.md")).unwrap();
    let (_, table) = page.split_once("<!-- invariants -->").expect("a table");
    let rows = table
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let mut places: BTreeMap<String, String> = BTreeMap::new();
    for row in rows {
        let prefix = row.split('|').nth(1).unwrap().trim().to_owned();
        let twice = places.insert(prefix.clone(), row.to_owned());
        assert_eq!(twice, None, "{prefix} has two rows");
    }
    let mut unlisted = Vec::new();
    let mut defined = BTreeSet::new();
    for (_, folder) in folders() {
        if !folder.ends_with("src") {
            continue;
        }
        for path in files(&folder, "rs") {
            for prefix in prefixes(&fs::read_to_string(&path).unwrap()) {
                let listed = places.get(&prefix).is_some_and(|row| {
                    let files = row.split('`').skip(1).step_by(2);
                    files.into_iter().any(|file| path.ends_with(file))
                });
                if !listed {
                    unlisted.push(format!("{}: {prefix}", path.display()));
                }
                defined.insert(prefix);
            }
        }
    }
    assert!(unlisted.is_empty(), "{unlisted:#?}");
    let listed: BTreeSet<String> = places.into_keys().collect();
    assert_eq!(defined, listed, "each row has a definition");
}

/// The prefixes of the numbers that a file defines, as in `//! - **C1** ...`.
fn prefixes(text: &str) -> BTreeSet<String> {
    let heads = text.lines().filter_map(|line| {
        let line = line
            .strip_prefix("//!")
            .or_else(|| line.strip_prefix("//"))?;
        let (number, _) = line.trim().strip_prefix("- **")?.split_once("**")?;
        let digits = number.trim_start_matches(|c: char| c.is_ascii_uppercase());
        let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit());
        let prefix = &number[..number.len() - digits.len()];
        (is_number && !prefix.is_empty()).then(|| prefix.to_owned())
    });
    heads.collect()
}
