//! Versions that the linker writes into variables of a program.
//!
//! The release scripts of most programs pass the version to the linker. Without the linker flag, a
//! program has a default version. For example, helm then assumes Kubernetes 1.20 and refuses charts
//! that require a newer version.

use crate::kubernetes::{gomod, release};
use anyhow::{Context as _, Result};

/// A string variable of a Go program, and the value that the linker writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    variable: &'static str,
    value: Value,
}

#[derive(Clone, Copy, Debug)]
enum Value {
    Constant(&'static str),
    /// The pinned version of this module, such as `v1.35.4`.
    Version(&'static str),
    /// The minor number of this module's pinned version, such as `35`.
    Minor(&'static str),
}

/// The version variables of Kubernetes. Kubernetes requires a commit and a build date in the right
/// format. Both are constant, so that builds are reproducible.
pub(super) const KUBERNETES: &[Stamp] = &[
    version("k8s.io/component-base/version.gitVersion", release::MODULE),
    constant("k8s.io/component-base/version.gitMajor", "1"),
    minor("k8s.io/component-base/version.gitMinor", release::MODULE),
    constant("k8s.io/component-base/version.gitTreeState", "clean"),
    constant("k8s.io/component-base/version.gitCommit", COMMIT),
    constant("k8s.io/component-base/version.buildDate", DATE),
    version("k8s.io/client-go/pkg/version.gitVersion", release::MODULE),
    constant("k8s.io/client-go/pkg/version.gitMajor", "1"),
    minor("k8s.io/client-go/pkg/version.gitMinor", release::MODULE),
    constant("k8s.io/client-go/pkg/version.gitTreeState", "clean"),
    constant("k8s.io/client-go/pkg/version.gitCommit", COMMIT),
    constant("k8s.io/client-go/pkg/version.buildDate", DATE),
];

const COMMIT: &str = "laboratory";
const DATE: &str = "2026-01-01T00:00:00Z";

/// The version variables of containerd, the CNI plugins and helm.
pub(super) const TOOLS: &[Stamp] = &[
    version(
        "github.com/containerd/containerd/v2/version.Version",
        "github.com/containerd/containerd/v2",
    ),
    version(
        "github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion",
        "github.com/containernetworking/plugins",
    ),
    version(
        "helm.sh/helm/v3/internal/version.version",
        "helm.sh/helm/v3",
    ),
    minor(
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor",
        "k8s.io/client-go",
    ),
    minor(
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor",
        "k8s.io/client-go",
    ),
];

/// The version variable of the storage provisioner.
pub(super) const LOCALPATH: &[Stamp] = &[version(
    "main.VERSION",
    "github.com/rancher/local-path-provisioner",
)];

impl Stamp {
    /// Returns the linker flag that sets the variable. `pins` is the content of a `go.mod`.
    ///
    /// # Errors
    ///
    /// Returns an error that names the module without a pinned version.
    pub(super) fn flag(&self, pins: &str) -> Result<String> {
        let pinned = |module| {
            gomod::required(pins, module).with_context(|| format!("no version of {module}"))
        };
        let value = match self.value {
            Value::Constant(text) => text,
            Value::Version(module) => pinned(module)?,
            Value::Minor(module) => pinned(module)?
                .split('.')
                .nth(1)
                .with_context(|| format!("the version of {module} has one number"))?,
        };

        Ok(format!("-X={}={value}", self.variable))
    }
}

const fn constant(variable: &'static str, text: &'static str) -> Stamp {
    Stamp {
        variable,
        value: Value::Constant(text),
    }
}

const fn version(variable: &'static str, module: &'static str) -> Stamp {
    Stamp {
        variable,
        value: Value::Version(module),
    }
}

const fn minor(variable: &'static str, module: &'static str) -> Stamp {
    Stamp {
        variable,
        value: Value::Minor(module),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PINS: &str = "require (\n\tk8s.io/x v0.35.4 // indirect\n\tk8s.io/y v2\n)\n";

    #[test]
    fn a_variable_is_set_to_a_version_or_to_its_minor_number() {
        let flag = |stamp: Stamp| stamp.flag(PINS).unwrap();

        assert_eq!(flag(version("a.b", "k8s.io/x")), "-X=a.b=v0.35.4");
        assert_eq!(flag(minor("a.b", "k8s.io/x")), "-X=a.b=35");
        assert_eq!(flag(constant("a.b", "c")), "-X=a.b=c");
    }

    #[test]
    fn a_module_without_version_is_named() {
        let refusal = |stamp: Stamp| stamp.flag(PINS).unwrap_err().to_string();

        assert_eq!(
            refusal(version("a.b", "k8s.io/z")),
            "no version of k8s.io/z"
        );
        assert!(refusal(minor("a.b", "k8s.io/y")).contains("k8s.io/y"));
    }
}
