//! Computes the packages that apt would install together with the declared packages on a minimal
//! Debian.

use std::collections::BTreeSet;

/// The output format of `dpkg-query --show` that [`parse`] reads.
pub(super) const FORMAT: &str = "${db:Status-Status}\t${binary:Package}\t${Package}\t\
    ${Essential}\t${Priority}\t${Pre-Depends}, ${Depends}\t${Provides}\n";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Installed {
    /// The name with the architecture, if dpkg needs the architecture to identify the package.
    id: String,
    name: String,
    /// Whether the package is part of every Debian installation.
    is_base: bool,
    /// The alternatives of each dependency. One package of each inner list must be installed.
    dependencies: Vec<Vec<String>>,
    /// Names of virtual packages that this package provides.
    provides: Vec<String>,
}

impl Installed {
    fn satisfies(&self, name: &str) -> bool {
        self.name == name || self.provides.iter().any(|provided| provided == name)
    }
}

/// Parses the output of `dpkg-query --show` in [`FORMAT`].
pub(super) fn parse(listing: &str) -> Vec<Installed> {
    listing.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Installed> {
    let fields: Vec<_> = line.split('\t').collect();
    let [
        "installed",
        id,
        name,
        essential,
        priority,
        dependencies,
        provides,
    ] = fields[..]
    else {
        return None;
    };

    Some(Installed {
        id: id.to_owned(),
        name: name.to_owned(),
        is_base: essential == "yes" || priority == "required",
        dependencies: split(dependencies, ',')
            .map(|alternatives| split(alternatives, '|').map(package_name).collect())
            .collect(),
        provides: split(provides, ',').map(package_name).collect(),
    })
}

fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    text.split(separator)
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

/// Extracts the package name of a dependency, for example `libc6` of `libc6:any (>= 2.36)`.
fn package_name(dependency: &str) -> String {
    let end = dependency
        .find(|letter: char| " :(".contains(letter))
        .unwrap_or(dependency.len());

    dependency[..end].to_owned()
}

/// Returns the ids of the `declared` packages, of Debian's base packages, and of all their
/// dependencies. Recommended packages are not included.
///
/// # Errors
///
/// Returns an error with the declared packages that are not installed.
pub(super) fn closure<'a>(
    installed: &'a [Installed],
    declared: &[&str],
) -> Result<BTreeSet<&'a str>, Vec<String>> {
    let absent: Vec<_> = declared
        .iter()
        .filter(|name| !installed.iter().any(|package| package.name == **name))
        .map(|&name| name.to_owned())
        .collect();
    if !absent.is_empty() {
        return Err(absent);
    }

    let mut kept: Vec<&Installed> = installed
        .iter()
        .filter(|package| package.is_base || declared.contains(&package.name.as_str()))
        .collect();
    let mut next = 0;
    while let Some(package) = kept.get(next).copied() {
        for alternatives in &package.dependencies {
            if let Some(dependency) = choose(installed, &kept, alternatives) {
                kept.push(dependency);
            }
        }
        next += 1;
    }

    Ok(kept
        .into_iter()
        .map(|package| package.id.as_str())
        .collect())
}

/// Returns the package that must be added to satisfy a dependency; `None` if the dependency is
/// already satisfied. Prefers an installed alternative with the required name to a package that
/// provides this name.
fn choose<'a>(
    installed: &'a [Installed],
    kept: &[&Installed],
    alternatives: &[String],
) -> Option<&'a Installed> {
    let is_satisfied = alternatives
        .iter()
        .any(|name| kept.iter().any(|package| package.satisfies(name)));
    if is_satisfied {
        return None;
    }
    let named = |name: &String| installed.iter().find(|package| package.name == *name);
    let providing = |name: &String| installed.iter().find(|package| package.satisfies(name));

    alternatives
        .iter()
        .find_map(named)
        .or_else(|| alternatives.iter().find_map(providing))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "\
installed\tbase-files\tbase-files\tyes\trequired\tawk, \t
installed\tbusybox-static\tbusybox-static\t\toptional\t, \tbusybox
installed\tgcc\tgcc\t\toptional\t, gcc-12 (>= 12.2), libc6:any | libc6-dev\tc-compiler, gcc-x (= 12)
installed\tgcc-12\tgcc-12\t\toptional\t, \t
installed\tgawk\tgawk\t\toptional\t, \tawk
installed\tgit\tgit\t\toptional\t, gcc, c-compiler\t
installed\tlibc6:amd64\tlibc6\t\toptional\t, \t
installed\tmawk\tmawk\t\trequired\t, \tawk
config-files\tvim\tvim\t\toptional\t, \t
";

    #[test]
    fn dependencies_are_followed_and_others_are_not_kept() {
        let installed = parse(LISTING);

        let kept = closure(&installed, &["gcc"]).unwrap();

        let expected = ["base-files", "gcc", "gcc-12", "libc6:amd64", "mawk"];
        assert_eq!(kept, expected.into());
    }

    #[test]
    fn a_virtual_package_is_satisfied_by_the_base() {
        let installed = parse(LISTING);

        let kept = closure(&installed, &[]).unwrap();

        assert_eq!(kept, ["base-files", "mawk"].into());
    }

    #[test]
    fn a_declared_package_that_is_not_installed_is_named() {
        let installed = parse(LISTING);

        let absent = closure(&installed, &["gcc", "vim", "busybox"]).unwrap_err();

        assert_eq!(absent, ["vim", "busybox"]);
    }

    #[test]
    fn versions_and_architectures_are_no_part_of_a_name() {
        let gcc = &parse(LISTING)[2];

        assert_eq!(
            gcc.dependencies,
            [vec!["gcc-12"], vec!["libc6", "libc6-dev"]]
        );
        assert_eq!(gcc.provides, ["c-compiler", "gcc-x"]);
    }
}
