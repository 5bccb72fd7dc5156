//! Checks that the modules of a crate do not import each other in a cycle.
//!
//! A module is a file or folder of the crate's `src`, with all that is below it. The crate's root
//! is no module: it declares the modules and re-exports their items.

use std::collections::{BTreeMap, BTreeSet};

/// The folders whose crates are checked.
const FOLDERS: &[&str] = &["control/"];

/// Modules that each module imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Returns one line for each crate with modules that import each other.
pub(super) fn of_crates(files: &[(String, String)]) -> Vec<String> {
    let mut crates: BTreeMap<&str, Imports> = BTreeMap::new();
    for (path, text) in files {
        let Some((crate_, module)) = module(path) else {
            continue;
        };
        let is_top = path.matches('/').count() == crate_.matches('/').count() + 2;
        let imports = crates.entry(crate_).or_default();
        let imports = imports.entry(module.to_owned()).or_default();
        imports.extend(imported(text, "crate::"));
        if is_top {
            imports.extend(imported(text, "super::"));
        }
    }

    crates
        .iter()
        .flat_map(|(crate_, imports)| {
            cycles(imports).into_iter().map(move |cycle| {
                let modules: Vec<_> = cycle.into_iter().collect();
                format!(
                    "{crate_}: these modules import each other: {}",
                    modules.join(", ")
                )
            })
        })
        .collect()
}

/// Returns crate and module of a source file; none for tests and for the crate's root.
fn module(path: &str) -> Option<(&str, &str)> {
    let (crate_, file) = path.split_once("/src/")?;
    let is_checked = FOLDERS.iter().any(|folder| path.starts_with(folder));
    let is_test = file.contains("tests/") || file.ends_with("tests.rs");
    let module = file.split('/').next()?.trim_end_matches(".rs");
    let is_root = ["lib", "main"].contains(&module);

    (is_checked && !is_test && !is_root).then_some((crate_, module))
}

/// Returns the first names of all paths that begin with `prefix`, also in lists such as
/// `crate::{a::B, c}`.
fn imported(text: &str, prefix: &str) -> BTreeSet<String> {
    let code: Vec<_> = super::code(text).map(|(_, line)| line).collect();
    let code = code.join("\n");
    let mut names = BTreeSet::new();
    for (start, _) in code.match_indices(prefix) {
        let rest = &code[start + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(list) => names.extend(first_names(list)),
            None => names.extend(first_name(rest)),
        }
    }

    names
}

/// Returns the first name of each item of a list, up to its closing brace.
fn first_names(list: &str) -> Vec<String> {
    let mut depth = 0_usize;
    let mut names: Vec<_> = first_name(list).into_iter().collect();
    for (index, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.extend(first_name(&list[index + 1..])),
            _ => {}
        }
    }

    names
}

fn first_name(text: &str) -> Option<String> {
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
    let name: String = text
        .trim_start()
        .chars()
        .take_while(|it| is_letter(*it))
        .collect();

    (!name.is_empty()).then_some(name)
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
