//! How each part is built.

use super::Program;
use super::stamp::{self, Stamp};
use crate::kubernetes::release::{self, Release};
use anyhow::Result;

/// What differs from part to part.
pub(super) struct Recipe {
    /// The part's name.
    pub(super) name: String,
    /// The module's folder, below that of all modules.
    pub(super) folder: &'static str,
    /// The file in it that pins all versions; the checksums are beside it.
    pub(super) modfile: String,
    /// Our own Go files in it.
    pub(super) sources: &'static [&'static str],
    /// Flags of `go build` that only this part has.
    flags: Vec<String>,
    stamps: &'static [Stamp],
    packages: &'static [&'static str],
    /// What comes out.
    pub(super) programs: &'static [Program],
}

/// What the go command must find in its environment.
///
/// Nothing of the machine gets into a program, neither the paths of its folders
/// nor the state of this checkout, so that equal inputs make equal programs. A
/// module whose checksum is not in the `.sum` file is refused and not added.
pub(in crate::kubernetes) const ENVIRONMENT: [(&str, &str); 3] = [
    ("CGO_ENABLED", "0"),
    ("GOFLAGS", "-mod=readonly -buildvcs=false -trimpath"),
    ("GOWORK", "off"),
];

impl Recipe {
    /// Arguments of `go build`, but for the place of the result; the text of the
    /// `go.mod` knows the versions.
    ///
    /// # Errors
    ///
    /// Returns an error that names the module whose version is not pinned.
    pub(super) fn arguments(&self, pins: &str) -> Result<Vec<String>> {
        let mut ldflags = vec![STRIPPED.to_owned()];
        for stamp in self.stamps {
            ldflags.push(stamp.flag(pins)?);
        }
        let ldflags = format!("-ldflags={}", ldflags.join(" "));
        let packages = self.packages.iter().map(|&package| package.to_owned());

        Ok([ldflags]
            .into_iter()
            .chain(self.flags.iter().cloned())
            .chain(packages)
            .collect())
    }
}

/// Returns the recipes of everything that clusters of `release` need.
pub(super) fn all(release: &Release) -> [Recipe; 4] {
    [kubernetes(release), tools(), localpath(), kwok()]
}

/// Neither symbols nor debug information, which are half of a Go program.
const STRIPPED: &str = "-s -w";

const KUBERNETES: &[Program] = &[Program {
    built: "kubernetes",
    place: "bin/kube",
    module: release::MODULE,
    links: &[
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kube-proxy",
        "kubelet",
        "kubectl",
    ],
}];

fn kubernetes(release: &Release) -> Recipe {
    Recipe {
        name: format!("kubernetes-{}", release.version),
        modfile: release.modfile.clone(),
        sources: &["main.go"],
        flags: vec![format!("-modfile={}", release.modfile)],
        packages: &["."],
        ..plain(release::FOLDER, KUBERNETES, stamp::KUBERNETES)
    }
}

const CONTAINERD: &str = "github.com/containerd/containerd/v2";
const PLUGINS: &str = "github.com/containernetworking/plugins";

const TOOLS: &[Program] = &[
    program("containerd", "bin/containerd", CONTAINERD),
    program(
        "containerd-shim-runc-v2",
        "bin/containerd-shim-runc-v2",
        CONTAINERD,
    ),
    program("ctr", "bin/ctr", CONTAINERD),
    program("server", "bin/etcd", "go.etcd.io/etcd/server/v3"),
    program("etcdctl", "bin/etcdctl", "go.etcd.io/etcd/etcdctl/v3"),
    program("helm", "bin/helm", "helm.sh/helm/v3"),
    program("coredns", "bin/coredns", "github.com/coredns/coredns"),
    program("ptp", "cni/ptp", PLUGINS),
    program("loopback", "cni/loopback", PLUGINS),
    program("host-local", "cni/host-local", PLUGINS),
    program("portmap", "cni/portmap", PLUGINS),
];

fn tools() -> Recipe {
    Recipe {
        sources: &["coredns/main.go"],
        // Containers have overlays here: no code for other kinds of snapshots.
        flags: vec!["-tags=no_btrfs,no_zfs,no_devmapper".to_owned()],
        packages: &["tool", "./coredns"],
        ..plain("tools", TOOLS, stamp::TOOLS)
    }
}

/// helm alone, with the versions of [`tools`], for the released `liqoctl`.
pub(super) fn helm(name: String) -> Recipe {
    Recipe {
        name,
        packages: &["helm.sh/helm/v3/cmd/helm"],
        ..plain("tools", HELM, stamp::TOOLS)
    }
}

const HELM: &[Program] = &[program("helm", "bin/helm", "helm.sh/helm/v3")];

const LOCALPATH: &[Program] = &[program(
    "local-path-provisioner",
    "bin/local-path-provisioner",
    "github.com/rancher/local-path-provisioner",
)];

fn localpath() -> Recipe {
    plain("localpath", LOCALPATH, stamp::LOCALPATH)
}

const KWOK: &[Program] = &[
    program("kwok", "bin/kwok", "sigs.k8s.io/kwok"),
    program("kwok-stages", "bin/kwok-stages", "sigs.k8s.io/kwok"),
];

fn kwok() -> Recipe {
    Recipe {
        sources: &["kwok-stages/main.go"],
        packages: &["tool", "./kwok-stages"],
        ..plain("kwok", KWOK, &[])
    }
}

/// Builds programs of others, which a `go.mod` names as its tools.
fn plain(name: &'static str, programs: &'static [Program], stamps: &'static [Stamp]) -> Recipe {
    Recipe {
        name: name.to_owned(),
        folder: name,
        modfile: "go.mod".to_owned(),
        sources: &[],
        flags: Vec::new(),
        stamps,
        packages: &["tool"],
        programs,
    }
}

const fn program(built: &'static str, place: &'static str, module: &'static str) -> Program {
    Program {
        built,
        place,
        module,
        links: &[],
    }
}
