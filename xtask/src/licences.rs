//! Checks that each dependency's licence is one of those `deny.toml` allows.
//!
//! `cargo deny` does the same and more, and `cargo xtask ci` runs it where it
//! is installed; building it takes longer than all the tests, though, and this
//! needs nothing.

use crate::{shell::Shell, workspace};
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
}

/// Checks all dependencies, of the kernel programs too.
///
/// Also shows that the lock files are current, which `--locked` insists on.
///
/// # Errors
///
/// Returns an error that names each package whose licence is not allowed.
pub(crate) fn check(shell: &mut Shell) -> Result<usize> {
    let text = fs::read_to_string(workspace::root().join("deny.toml"))
        .context("failed to read deny.toml")?;
    let allowed = allowed(&text).context("deny.toml has no list of allowed licences")?;

    let mut packages = Vec::new();
    for manifest in ["Cargo.toml", "ebpf/program/Cargo.toml"] {
        packages.extend(dependencies(shell, manifest)?);
    }
    let refused: Vec<_> = packages
        .iter()
        .filter(|package| {
            let licence = package.license.as_deref().unwrap_or_default();
            !satisfied(licence, &allowed)
        })
        .map(|package| {
            let licence = package.license.as_deref().unwrap_or("no licence");
            format!("{} {} ({licence})", package.name, package.version)
        })
        .collect();
    if !refused.is_empty() {
        bail!("licences not allowed by deny.toml: {}", refused.join(", "));
    }

    Ok(packages.len())
}

fn dependencies(shell: &mut Shell, manifest: &str) -> Result<Vec<Package>> {
    let arguments = ["metadata", "--format-version", "1", "--locked"];
    let mut command = workspace::cargo(&arguments);
    command.args(["--manifest-path", manifest]);
    let output = shell.output(command)?;
    if !output.status.success() {
        bail!(
            "cargo metadata of {manifest} failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")?;

    Ok(metadata.packages)
}

/// Reads the strings of the list `allow` in the table `licenses`.
fn allowed(deny: &str) -> Option<BTreeSet<&str>> {
    let table = deny.split_once("[licenses]")?.1;
    let list = table.split_once("allow = [")?.1.split_once(']')?.0;

    Some(list.split('"').skip(1).step_by(2).collect())
}

/// Whether an SPDX expression can be met by allowed licences alone.
///
/// AND binds tighter than OR; `/` is the old spelling of OR; an exception
/// (WITH) only ever permits more.
fn satisfied(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let tokens: Vec<_> = spaced.split_whitespace().collect();
    let mut rest = &tokens[..];

    either(&mut rest, allowed) && rest.is_empty()
}

fn either(tokens: &mut &[&str], allowed: &BTreeSet<&str>) -> bool {
    let mut met = all(tokens, allowed);
    while let ["OR", rest @ ..] = *tokens {
        *tokens = rest;
        met |= all(tokens, allowed);
    }
    met
}

fn all(tokens: &mut &[&str], allowed: &BTreeSet<&str>) -> bool {
    let mut met = one(tokens, allowed);
    while let ["AND", rest @ ..] = *tokens {
        *tokens = rest;
        met &= one(tokens, allowed);
    }
    met
}

fn one(tokens: &mut &[&str], allowed: &BTreeSet<&str>) -> bool {
    match *tokens {
        ["(", rest @ ..] => {
            *tokens = rest;
            let met = either(tokens, allowed);
            match *tokens {
                [")", rest @ ..] => {
                    *tokens = rest;
                    met
                }
                _ => false,
            }
        }
        [licence, "WITH", _, rest @ ..] | [licence, rest @ ..] => {
            *tokens = rest;
            allowed.contains(licence)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_allowed_alternative_is_enough() {
        assert!(met("MIT OR GPL-3.0"));
        assert!(met("GPL-3.0/MIT"));
        assert!(!met("GPL-3.0"));
    }

    #[test]
    fn every_conjunct_must_be_allowed() {
        assert!(met("(GPL-3.0 OR MIT) AND ISC"));
        assert!(!met("MIT AND GPL-3.0"));
        assert!(!met("(MIT AND GPL-3.0)"));
    }

    #[test]
    fn an_exception_does_not_forbid() {
        assert!(met("Apache-2.0 WITH LLVM-exception OR GPL-3.0"));
    }

    #[test]
    fn nonsense_and_nothing_are_refused() {
        for expression in ["", "MIT MIT", "(MIT", "AND"] {
            assert!(!met(expression), "{expression}");
        }
    }

    #[test]
    fn the_list_is_read_from_its_table() {
        let deny = "[bans]\nallow = [\"x\"]\n[licenses]\nallow = [\n  \"MIT\",\n  \"ISC\",\n]\n";

        assert_eq!(allowed(deny), Some(BTreeSet::from(["ISC", "MIT"])));
    }

    fn met(expression: &str) -> bool {
        satisfied(expression, &BTreeSet::from(["Apache-2.0", "ISC", "MIT"]))
    }
}
