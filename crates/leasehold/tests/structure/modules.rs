//! Reads the modules of a crate and their imports from the sources.
//!
//! A folder's entries are its files, its folders, and its head. The head is `mod.rs`, `lib.rs`, `main.rs`, or the file beside the folder
//! with the folder's name. A `mod` that only declares is no import. Test code may import everything, so it is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::Visit;
use syn::{Attribute, ItemMod, ItemUse, UseTree};

/// The name of a folder's head among its entries.
pub(crate) const HEAD: &str = "(head)";

/// A module, by the names from the crate's root.
pub(crate) type Module = Vec<String>;

/// The modules of a crate, their files and their imports.
#[derive(Default)]
pub(crate) struct Crate {
    pub(crate) files: BTreeMap<Module, PathBuf>,
    pub(crate) imports: Vec<(Module, Module)>,
}

/// The declarations and imports of a file.
#[derive(Default)]
struct Found {
    at: Module,
    modules: Vec<Module>,
    uses: Vec<(Module, Vec<String>)>,
}

pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
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
    pub(crate) fn read(root: &Path) -> Self {
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

    /// In each folder, the imports between its entries.
    pub(crate) fn arrows(&self) -> BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> {
        let mut arrows: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for (from, to) in &self.imports {
            let common = from
                .iter()
                .zip(to)
                .take_while(|(from, to)| from == to)
                .count();
            // The innermost folder around both modules. If one of them is that folder's own module, its entry is the head.
            let folder = from[..common].to_vec();
            let entry =
                |module: &Module| module.get(common).cloned().unwrap_or_else(|| HEAD.into());
            let folder = arrows.entry(folder).or_default();
            folder.entry(entry(from)).or_default().insert(entry(to));
        }
        arrows
    }
}

/// The crates of the workspace: name and root file.
pub(crate) fn crates() -> Vec<(String, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let home = entry.unwrap().path();
        let name = home.file_name().unwrap().to_str().unwrap().to_owned();
        let roots = ["lib.rs", "main.rs"].map(|head| home.join("src").join(head));
        found.extend(
            roots
                .into_iter()
                .filter(|root| root.exists())
                .map(|root| (name.clone(), root)),
        );
    }
    found
}

/// The sources below a folder.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found
}
