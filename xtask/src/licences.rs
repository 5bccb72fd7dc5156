//! Checks that `deny.toml` allows the licences of all dependencies.
//!
//! `cargo xtask ci` runs this check on every machine. `cargo deny` checks more, but takes minutes
//! to build. So `cargo xtask ci` runs `cargo deny` only if it is installed.

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

/// Checks all dependencies, including those of the eBPF programs and the fuzz targets, and returns
/// their number. Because of `--locked`, an outdated lock file is an error, too.
///
/// # Errors
///
/// Returns an error that names each package whose licence is not allowed.
pub(crate) fn check(shell: &mut Shell) -> Result<usize> {
    let text = fs::read_to_string(workspace::root().join("deny.toml"))
        .context("failed to read deny.toml")?;
    let allowed = allowed(&text).context("deny.toml has no list of allowed licences")?;

    let mut packages = Vec::new();
    for manifest in ["Cargo.toml", "ebpf/program/Cargo.toml", "fuzz/Cargo.toml"] {
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

/// Returns the strings of the list `allow` in the table `licenses`.
fn allowed(deny: &str) -> Option<BTreeSet<&str>> {
    let table = deny.split_once("[licenses]")?.1;
    let list = table.split_once("allow = [")?.1.split_once(']')?.0;

    Some(list.split('"').skip(1).step_by(2).collect())
}

/// Returns whether the allowed licences satisfy an SPDX expression.
///
/// AND binds tighter than OR, and `/` is the old spelling of OR. An exception (WITH) only grants
/// additional permissions, so it is ignored.
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
    let mut is_satisfied = all(tokens, allowed);
    while let ["OR", rest @ ..] = *tokens {
        *tokens = rest;
        is_satisfied |= all(tokens, allowed);
    }
    is_satisfied
}

fn all(tokens: &mut &[&str], allowed: &BTreeSet<&str>) -> bool {
    let mut is_satisfied = one(tokens, allowed);
    while let ["AND", rest @ ..] = *tokens {
        *tokens = rest;
        is_satisfied &= one(tokens, allowed);
    }
    is_satisfied
}

fn one(tokens: &mut &[&str], allowed: &BTreeSet<&str>) -> bool {
    match *tokens {
        ["(", rest @ ..] => {
            *tokens = rest;
            let is_satisfied = either(tokens, allowed);
            match *tokens {
                [")", rest @ ..] => {
                    *tokens = rest;
                    is_satisfied
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
        assert!(is_satisfied("MIT OR GPL-3.0"));
        assert!(is_satisfied("GPL-3.0/MIT"));
        assert!(!is_satisfied("GPL-3.0"));
    }

    #[test]
    fn every_conjunct_must_be_allowed() {
        assert!(is_satisfied("(GPL-3.0 OR MIT) AND ISC"));
        assert!(!is_satisfied("MIT AND GPL-3.0"));
        assert!(!is_satisfied("(MIT AND GPL-3.0)"));
    }

    #[test]
    fn an_exception_does_not_forbid() {
        assert!(is_satisfied("Apache-2.0 WITH LLVM-exception OR GPL-3.0"));
    }

    #[test]
    fn an_invalid_or_empty_expression_is_refused() {
        for expression in ["", "MIT MIT", "(MIT", "AND"] {
            assert!(!is_satisfied(expression), "{expression}");
        }
    }

    #[test]
    fn the_list_is_read_from_the_table_of_licences() {
        let deny = "[bans]\nallow = [\"x\"]\n[licenses]\nallow = [\n  \"MIT\",\n  \"ISC\",\n]\n";

        assert_eq!(allowed(deny), Some(BTreeSet::from(["ISC", "MIT"])));
    }

    fn is_satisfied(expression: &str) -> bool {
        satisfied(expression, &BTreeSet::from(["Apache-2.0", "ISC", "MIT"]))
    }
}
