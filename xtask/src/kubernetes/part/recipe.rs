//! The sources, compiler flags and programs of each part.

use super::Program;
use super::stamp::{self, Stamp};
use crate::kubernetes::release::{self, Release};
use anyhow::Result;

/// The properties of a part before its versions are resolved.
pub(super) struct Recipe {
    pub(super) name: String,
    /// The folder of the Go module, relative to `tests/kubernetes/go`.
    pub(super) folder: &'static str,
    /// The file in the module's folder that pins the versions of all dependencies. A `.sum` file
    /// with the same name pins their checksums.
    pub(super) modfile: String,
    /// This project's own Go files in the module's folder.
    pub(super) sources: &'static [&'static str],
    /// Additional flags of `go build`.
    flags: Vec<String>,
    stamps: &'static [Stamp],
    packages: &'static [&'static str],
    pub(super) programs: &'static [Program],
    /// Whether each cluster needs the programs.
    pub(super) is_essential: bool,
}

/// The environment variables of the go command.
///
/// The variables make builds reproducible: programs contain neither paths of this machine nor the
/// commit of this checkout. The go command refuses modules without a checksum in the `.sum` file.
pub(in crate::kubernetes) const ENVIRONMENT: [(&str, &str); 3] = [
    ("CGO_ENABLED", "0"),
    ("GOFLAGS", "-mod=readonly -buildvcs=false -trimpath"),
    ("GOWORK", "off"),
];

impl Recipe {
    /// Returns the arguments of `go build` except `-o`. `pins` is the content of the `.mod` file.
    ///
    /// # Errors
    ///
    /// Returns an error that names the module without a pinned version.
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

/// Returns the recipes of all parts of a Kubernetes release.
pub(super) fn all(release: &Release) -> [Recipe; 5] {
    [
        kubernetes(release),
        tools(),
        localpath(),
        kwok(),
        metrics_server(),
    ]
}

/// Linker flags that omit symbols and debug information, which are half of the size of a Go
/// program.
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
        // containerd uses overlayfs in the laboratory, so the other snapshotters are not built.
        flags: vec!["-tags=no_btrfs,no_zfs,no_devmapper".to_owned()],
        packages: &["tool", "./coredns"],
        ..plain("tools", TOOLS, stamp::TOOLS)
    }
}

/// Returns a recipe for helm alone, which the released `liqoctl` includes. It uses the same
/// versions as [`tools`].
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
        is_essential: false,
        ..plain("kwok", KWOK, &[])
    }
}

const METRICS_SERVER: &[Program] = &[program(
    "metrics-server",
    "bin/metrics-server",
    "sigs.k8s.io/metrics-server",
)];

fn metrics_server() -> Recipe {
    Recipe {
        is_essential: false,
        ..plain("metrics-server", METRICS_SERVER, &[])
    }
}

/// Returns a recipe for third-party programs that a `go.mod` lists as tools.
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
        is_essential: true,
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
