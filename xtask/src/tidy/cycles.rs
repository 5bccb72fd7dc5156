//! Checks that the modules of a crate do not import each other in a cycle.
//!
//! A module is a file or folder of the crate's `src`, with all that is below it. The modules of each folder are
//! compared with each other. A module and its own submodules may import each other: they are one unit.

use std::collections::{BTreeMap, BTreeSet};

/// The folders whose crates are checked.
const FOLDERS: &[&str] = &["control/"];

/// Modules that each module of a folder imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Path of a module within its crate.
type Path = Vec<String>;

/// Returns one line for each folder with modules that import each other.
pub(super) fn of_crates(files: &[(String, String)]) -> Vec<String> {
    let mut crates: BTreeMap<&str, Vec<(Path, &str)>> = BTreeMap::new();
    for (path, text) in files {
        if let Some((crate_, module)) = module(path) {
            crates.entry(crate_).or_default().push((module, text));
        }
    }

    let mut lines = Vec::new();
    for (crate_, modules) in crates {
        for (folder, imports) in folders(&modules) {
            for cycle in cycles(&imports) {
                let folder: String = folder.iter().map(|name| format!("/{name}")).collect();
                let modules: Vec<_> = cycle.into_iter().collect();
                lines.push(format!(
                    "{crate_}{folder}: these modules import each other: {}",
                    modules.join(", ")
                ));
            }
        }
    }

    lines
}

/// Returns crate and module of a source file; none for tests and for the crate's root.
fn module(path: &str) -> Option<(&str, Path)> {
    let (crate_, file) = path.split_once("/src/")?;
    let is_checked = FOLDERS.iter().any(|folder| path.starts_with(folder));
    let is_test = file.contains("tests/") || file.ends_with("tests.rs");
    let module: Path = file
        .trim_end_matches(".rs")
        .split('/')
        .map(str::to_owned)
        .collect();
    let is_root = ["lib", "main"].contains(&module.first()?.as_str());

    (is_checked && !is_test && !is_root).then_some((crate_, module))
}

/// Returns the imports between the modules of each folder of a crate.
fn folders(modules: &[(Path, &str)]) -> BTreeMap<Path, Imports> {
    let known: BTreeSet<&[String]> = modules
        .iter()
        .flat_map(|(module, _)| (1..=module.len()).map(|len| &module[..len]))
        .collect();
    let mut folders: BTreeMap<Path, Imports> = BTreeMap::new();
    for (module, text) in modules {
        for import in imported(module, text) {
            let len = (0..=import.len()).rev();
            let mut targets = len.map(|len| &import[..len]);
            let Some(target) = targets.find(|target| known.contains(target)) else {
                continue;
            };
            let common = module.iter().zip(target).take_while(|(a, b)| a == b);
            let common = common.count();
            // A module and one that contains it.
            let (Some(from), Some(to)) = (module.get(common), target.get(common)) else {
                continue;
            };
            let imports = folders.entry(module[..common].to_vec()).or_default();
            imports.entry(to.clone()).or_default();
            imports.entry(from.clone()).or_default().insert(to.clone());
        }
    }

    folders
}

/// Returns all paths below the crate that a module names, also in lists such as `crate::{a::B, c}`.
fn imported(module: &[String], text: &str) -> BTreeSet<Path> {
    let code: Vec<_> = super::code(text).map(|(_, line)| line).collect();
    let code = code.join("\n");
    let mut paths = BTreeSet::new();
    for (start, _) in code.match_indices("crate::") {
        add_paths(&code[start + "crate::".len()..], Vec::new(), &mut paths);
    }
    for (start, _) in code.match_indices("super::") {
        if code[..start].ends_with("super::") {
            continue;
        }
        let (mut rest, mut parent) = (&code[start..], module);
        while let Some(after) = rest.strip_prefix("super::") {
            (rest, parent) = (after, parent.split_last().map_or(parent, |(_, it)| it));
        }
        add_paths(rest, parent.to_vec(), &mut paths);
    }

    paths
}

/// Adds the paths at the start of a text, which begin with `prefix`. Returns the text behind them.
fn add_paths<'a>(text: &'a str, mut prefix: Path, paths: &mut BTreeSet<Path>) -> &'a str {
    let mut text = text.trim_start();
    if let Some(mut list) = text.strip_prefix('{') {
        loop {
            list = list.trim_start_matches(|letter: char| letter == ',' || letter.is_whitespace());
            if let Some(rest) = list.strip_prefix('}') {
                return rest;
            }
            let rest = add_paths(list, prefix.clone(), paths);
            // Renamings, and whatever else is no path.
            let rest = rest.trim_start_matches(|letter| ![',', '}', '{'].contains(&letter));
            if rest.len() == list.len() || rest.is_empty() {
                return rest;
            }
            list = rest;
        }
    }
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    if !name.is_empty() {
        prefix.push(name.to_owned());
    }
    text = rest;
    if let Some(rest) = text.strip_prefix("::") {
        return add_paths(rest, prefix, paths);
    }
    paths.insert(prefix);

    text
}

/// Returns the sets of modules that reach each other.
fn cycles(imports: &Imports) -> BTreeSet<BTreeSet<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = imports
        .keys()
        .map(|module| (module.as_str(), reachable(imports, module)))
        .collect();

    reached
        .iter()
        .map(|(module, others)| {
            let mutual = |other: &&&str| reached.get(**other).is_some_and(|it| it.contains(module));
            others.iter().filter(mutual).copied().collect()
        })
        .filter(|cycle: &BTreeSet<&str>| cycle.len() > 1)
        .collect()
}

/// Returns the modules that `module` imports, directly or through others.
fn reachable<'a>(imports: &'a Imports, module: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut queue = vec![module];
    while let Some(module) = queue.pop() {
        for next in imports.get(module).into_iter().flatten() {
            if imports.contains_key(next) && found.insert(next.as_str()) {
                queue.push(next);
            }
        }
    }

    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(texts: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        texts.iter().map(owned).collect()
    }

    #[test]
    fn modules_that_import_each_other_through_a_third_are_refused() {
        let files = files(&[
            (
                "control/x/src/a/inner.rs",
                "use crate::{\n    c,\n    b::{B, D},\n};\n",
            ),
            ("control/x/src/b.rs", "fn f() { super::c::g() }\n"),
            ("control/x/src/c.rs", "pub use crate::a::inner;\n"),
            ("control/x/src/d.rs", "use crate::a;\n"),
        ]);

        assert_eq!(
            of_crates(&files),
            ["control/x: these modules import each other: a, b, c"]
        );
    }

    #[test]
    fn modules_of_a_folder_that_import_each_other_are_refused() {
        let files = files(&[
            ("control/x/src/a/b.rs", "use super::{d, c::{C, E as F}};\n"),
            (
                "control/x/src/a/c/inner.rs",
                "fn f() { super::super::b::g() }\n",
            ),
            ("control/x/src/a/d.rs", "use crate::a::{D, e};\n"),
        ]);

        assert_eq!(
            of_crates(&files),
            ["control/x/a: these modules import each other: b, c"]
        );
    }

    #[test]
    fn a_module_and_its_submodules_are_one_unit() {
        let files = files(&[
            ("control/x/src/a.rs", "use b::B;\nuse crate::a::b::c;\n"),
            ("control/x/src/a/b.rs", "use super::A;\nuse crate::a::D;\n"),
        ]);

        assert_eq!(of_crates(&files), [""; 0]);
    }

    #[test]
    fn comments_tests_and_the_root_are_no_imports() {
        let files = files(&[
            ("control/x/src/lib.rs", "pub use a::A;\n"),
            (
                "control/x/src/a.rs",
                "// crate::b\n#[cfg(test)]\nmod tests { use crate::b; }\n",
            ),
            ("control/x/src/a/tests.rs", "use crate::b;\n"),
            ("control/x/src/b.rs", "use crate::{a, B};\n"),
        ]);

        assert_eq!(of_crates(&files), [""; 0]);
    }
}
