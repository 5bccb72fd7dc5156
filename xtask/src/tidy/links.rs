//! Checks that relative links in Markdown documents lead to existing files and headings.

use crate::workspace;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// The content of each document, by path relative to the checkout.
type Documents = BTreeMap<PathBuf, String>;

/// Returns one line for each broken link.
pub(super) fn broken(documents: &[(String, String)]) -> Vec<String> {
    let documents = documents
        .iter()
        .map(|(path, text)| (PathBuf::from(path), text.clone()))
        .collect();

    broken_in(&documents, |path| workspace::root().join(path).exists())
}

fn broken_in(documents: &Documents, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut broken = Vec::new();
    for (path, text) in documents {
        for (number, target) in links(text) {
            if let Some(problem) = problem(path, &target, documents, &exists) {
                broken.push(format!("{}:{number}: {problem}", path.display()));
            }
        }
    }

    broken
}

fn problem(
    document: &Path,
    target: &str,
    documents: &Documents,
    exists: impl Fn(&Path) -> bool,
) -> Option<String> {
    let is_external = target
        .split_once(':')
        .is_some_and(|(scheme, _)| scheme.chars().all(|letter| letter.is_ascii_alphanumeric()));
    if is_external {
        return None;
    }
    let (file, heading) = match target.split_once('#') {
        Some((file, heading)) => (file, Some(heading)),
        None => (target, None),
    };
    let path = match file {
        "" => document.to_owned(),
        file => normalize(&document.parent()?.join(file)),
    };
    if !exists(&path) {
        return Some(format!("the link `{target}` leads to no file"));
    }
    let heading = heading?;
    let text = documents.get(&path)?;

    (!anchors(text).contains(heading)).then(|| {
        format!(
            "the link `{target}` leads to no heading of {}",
            path.display()
        )
    })
}

/// Resolves `..` and `.` in a path without accessing the file system.
fn normalize(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => normal.push(part),
        }
    }

    normal
}

/// Returns the target and the line number of each link.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        let line = without_code(line);
        let mut rest = line.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let target = after.split([')', ' ']).next().unwrap_or_default();
            links.push((number, target.to_owned()));
            rest = after;
        }
        // A link definition has the form `[name]: target`.
        if let Some((_, target)) = line
            .split_once("]: ")
            .filter(|(name, _)| name.starts_with('['))
        {
            let target = target.split_whitespace().next().unwrap_or_default();
            links.push((number, target.to_owned()));
        }
    }

    links
}

/// Returns the anchors that GitHub generates for the headings. An anchor is in lower case, with
/// dashes instead of spaces and without punctuation. Repeated headings get a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let anchor: String = title
            .trim()
            .chars()
            .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter))
            .map(|letter| if letter == ' ' { '-' } else { letter })
            .flat_map(char::to_lowercase)
            .collect();
        let count = counts.entry(anchor.clone()).or_default();
        anchors.insert(match count {
            0 => anchor,
            _ => format!("{anchor}-{count}"),
        });
        *count += 1;
    }

    anchors
}

/// Returns the lines outside of fenced code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;

    text.lines()
        .enumerate()
        .filter(move |(_, line)| {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            !is_code && !is_fence
        })
        .map(|(index, line)| (index + 1, line))
}

/// Removes text between backquotes from a line.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_files_and_headings_are_followed() {
        let broken = broken_in(
            &documents(&[
                (
                    "README.md",
                    "[a](docs/a.md), [b](docs/a.md#two-words), [c](#top)\n# Top",
                ),
                (
                    "docs/a.md",
                    "## Two, words\n[up](../README.md) [x]\n[x]: ../LICENSE\n",
                ),
            ]),
            |path| {
                ["README.md", "docs/a.md", "LICENSE"]
                    .map(Path::new)
                    .contains(&path)
            },
        );

        assert_eq!(broken, [""; 0]);
    }

    #[test]
    fn a_broken_link_is_reported_with_its_line() {
        let text = "# A\n\n[a](gone.md) [b](#b) [c](b.md#gone)";

        let broken = broken_in(&documents(&[("a.md", text), ("b.md", "")]), |path| {
            path != Path::new("gone.md")
        });

        assert_eq!(
            broken,
            [
                "a.md:3: the link `gone.md` leads to no file",
                "a.md:3: the link `#b` leads to no heading of a.md",
                "a.md:3: the link `b.md#gone` leads to no heading of b.md",
            ]
        );
    }

    #[test]
    fn code_and_addresses_are_no_relative_links() {
        let text = "```\n[a](gone)\n```\n`[b](gone)` [c](https://example.com/gone#x)";

        assert_eq!(broken_in(&documents(&[("a.md", text)]), |_| false), [""; 0]);
    }

    #[test]
    fn a_repeated_heading_gets_a_number() {
        let anchors = anchors("# Set-up: `x`!\n## A_b\n## A_b\n#no heading\n");

        assert_eq!(
            anchors,
            ["set-up-x", "a_b", "a_b-1"].map(str::to_owned).into()
        );
    }

    fn documents(texts: &[(&str, &str)]) -> Documents {
        texts
            .iter()
            .map(|(path, text)| (PathBuf::from(path), (*text).to_owned()))
            .collect()
    }
}
