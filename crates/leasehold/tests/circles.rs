//! No circle of imports: in no folder of the workspace do two entries lean on each other, read from the `use` of their files.
//!
//! A folder's entries are its files and its folders, and the file at its head (`mod.rs`, `lib.rs`, `main.rs`, or the file beside the
//! folder that has its name). What one of them imports from another is an arrow. A `mod` that only declares is none, and tests are left
//! out: they may look at everything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::Visit;
use syn::{Attribute, ItemMod, ItemUse, UseTree};

/// A module, by the names from the crate's root.
type Module = Vec<String>;

/// The modules of a crate, their files and their imports.
#[derive(Default)]
struct Crate {
    files: BTreeMap<Module, PathBuf>,
    imports: Vec<(Module, Module)>,
}

/// What a file declares and imports.
#[derive(Default)]
struct Found {
    at: Module,
    modules: Vec<Module>,
    uses: Vec<(Module, Vec<String>)>,
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|condition| condition.is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for Found {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if is_test(&item.attrs) {
            return;
        }
        let elsewhere = item
            .attrs
            .iter()
            .any(|attribute| attribute.path().is_ident("path"));
        assert!(
            !elsewhere,
            "{} is read from where its name says",
            item.ident
        );
        self.at.push(item.ident.to_string());
        if item.content.is_none() {
            self.modules.push(self.at.clone());
        } else {
            syn::visit::visit_item_mod(self, item);
        }
        self.at.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !is_test(&item.attrs) {
            let mut paths = Vec::new();
            leaves(&item.tree, &mut Vec::new(), &mut paths);
            let at = self.at.clone();
            self.uses
                .extend(paths.into_iter().map(|path| (at.clone(), path)));
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_fn(self, item);
        }
    }
}

/// The paths of a `use`, from left to right.
fn leaves(tree: &UseTree, before: &mut Vec<String>, into: &mut Vec<Vec<String>>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            leaves(&path.tree, before, into);
            before.pop();
        }
        UseTree::Name(name) => into.push([&before[..], &[name.ident.to_string()]].concat()),
        UseTree::Rename(name) => into.push([&before[..], &[name.ident.to_string()]].concat()),
        UseTree::Glob(_) => into.push(before.clone()),
        UseTree::Group(group) => {
            for tree in &group.items {
                leaves(tree, before, into);
            }
        }
    }
}

impl Crate {
    fn read(root: &Path) -> Self {
        let mut all = Self::default();
        let mut uses = Vec::new();
        all.visit(root, &Vec::new(), &mut uses);
        for (from, path) in uses {
            if let Some(to) = all.resolve(&from, &path) {
                let from = all.with_file(&from);
                if from != to {
                    all.imports.push((from, to));
                }
            }
        }
        all
    }

    fn visit(&mut self, file: &Path, module: &Module, uses: &mut Vec<(Module, Vec<String>)>) {
        let text =
            fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed =
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut found = Found {
            at: module.clone(),
            ..Found::default()
        };
        found.visit_file(&parsed);
        self.files.insert(module.clone(), file.to_owned());
        uses.extend(found.uses);
        let is_head = ["mod.rs", "lib.rs", "main.rs"]
            .iter()
            .any(|head| file.ends_with(head));
        let folder = match file.parent() {
            Some(parent) if is_head => parent.to_owned(),
            _ => file.with_extension(""),
        };
        for child in found.modules {
            let inside = &child[module.len()..];
            let beside = folder.join(inside.join("/"));
            let candidates = [beside.with_extension("rs"), beside.join("mod.rs")];
            let found = candidates.iter().find(|file| file.exists());
            let found = found.unwrap_or_else(|| panic!("{child:?} of {}", file.display()));
            self.visit(found, &child, uses);
        }
    }

    /// The nearest module around this one that has a file of its own.
    fn with_file(&self, module: &[String]) -> Module {
        let mut module = module.to_vec();
        while !self.files.contains_key(&module) {
            module.pop();
        }
        module
    }

    /// The module with a file that a path leads to, if it stays in the crate.
    fn resolve(&self, from: &[String], path: &[String]) -> Option<Module> {
        let mut at = match path.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => from.to_vec(),
            // A child of the module, or another crate.
            Some(name) => {
                let child = [from, &[name.to_owned()]].concat();
                self.files.contains_key(&child).then(|| from.to_vec())?
            }
            None => return None,
        };
        for name in path {
            match name.as_str() {
                "crate" | "self" => {}
                "super" => drop(at.pop()),
                name => {
                    at.push(name.to_owned());
                    if !self.files.contains_key(&at) {
                        at.pop();
                        break;
                    }
                }
            }
        }
        Some(self.with_file(&at))
    }

    /// Circles among the entries of each folder, as lists of names.
    fn circles(&self) -> Vec<String> {
        let mut arrows: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for (from, to) in &self.imports {
            let common = from
                .iter()
                .zip(to)
                .take_while(|(from, to)| from == to)
                .count();
            // In each folder around both; the head of one is the module itself.
            let folder = from[..common].to_vec();
            let entry = |module: &Module| {
                module
                    .get(common)
                    .cloned()
                    .unwrap_or_else(|| "(head)".into())
            };
            let folder = arrows.entry(folder).or_default();
            folder.entry(entry(from)).or_default().insert(entry(to));
        }
        let mut circles = Vec::new();
        for (folder, arrows) in &arrows {
            for part in parts(arrows) {
                circles.push(format!("{}: {}", folder.join("/"), part.join(", ")));
            }
        }
        circles
    }
}

/// The strongly connected parts of more than one: who reaches whom, both ways.
fn parts(arrows: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reach = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(next) = open.pop() {
            for to in arrows.get(&next).into_iter().flatten() {
                if seen.insert(to.clone()) {
                    open.push(to.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<_, _> = arrows.keys().map(|name| (name, reach(name))).collect();
    let mut parts = BTreeSet::new();
    for (name, to) in &reached {
        let both = |other: &&String| reached.get(other).is_some_and(|back| back.contains(*name));
        let part: Vec<_> = to.iter().filter(both).cloned().collect();
        if part.len() > 1 {
            parts.insert(part);
        }
    }
    parts.into_iter().collect()
}

#[test]
fn no_folder_has_a_circle_of_imports() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut found, mut files, mut imports) = (Vec::new(), 0, 0);
    for entry in fs::read_dir(crates).unwrap() {
        let home = entry.unwrap().path();
        let name = home.file_name().unwrap().to_str().unwrap().to_owned();
        for head in ["lib.rs", "main.rs"] {
            let root = home.join("src").join(head);
            if root.exists() {
                let all = Crate::read(&root);
                files += all.files.len();
                imports += all.imports.len();
                let circles = all.circles();
                found.extend(circles.into_iter().map(|circle| format!("{name}/{circle}")));
            }
        }
    }
    let read = format!("{files} files with {imports} imports were read");
    assert!(files > 350 && imports > 2_000, "only {read}");
    assert!(found.is_empty(), "circles:\n{found:#?}");
}

#[test]
fn a_circle_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("lib.rs", "mod a; mod b; mod c; use a::A;");
    write("a.rs", "use crate::b::B; pub struct A;");
    write("b.rs", "use super::{c::C}; pub struct B;");
    write(
        "c.rs",
        "pub struct C; #[cfg(test)] mod tests { use crate::a::A; }",
    );
    let circles = || Crate::read(&folder.path().join("lib.rs")).circles();
    assert!(circles().is_empty(), "a test may look at everything");
    write("c.rs", "pub fn c() { use crate::a::A; }");
    assert_eq!(circles(), [": a, b, c"]);
    write("c.rs", "use super::X;");
    assert_eq!(circles(), [": (head), a, b, c"]);
}
