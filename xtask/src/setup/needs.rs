//! Lists the packages and tools that the project needs, and plans their installation.
//!
//! Both `cargo xtask setup` and [`crate::view`] use this list. So a package that is not declared
//! here is neither installed nor visible in CI.

use clap::ValueEnum;
use std::collections::BTreeSet;

/// The release of bpf-linker that links the eBPF programs.
pub(super) const LINKER_VERSION: &str = "0.13.0";

/// The LLVM major version that bpf-linker is linked with. LLVM cannot read bitcode that a later
/// version wrote, so the Rust compiler must use the same version.
const LLVM_VERSION: &str = "22";

/// The folder of Debian's LLVM package.
pub(super) const LLVM: &str = "/usr/lib/llvm-22";

/// The mount point of the BPF file system, which holds pinned programs and maps.
pub(super) const BPF_MOUNT: &str = "/sys/fs/bpf";

/// A group of commands that share a list of packages.
///
/// Each set includes the packages of [`Set::Compile`], because every command builds its programs
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Set {
    /// Compiling and linking Rust programs, including `cargo xtask`.
    Compile,
    /// Building the workspace and the eBPF programs, lints, and documentation.
    Build,
    /// `cargo xtask test --only unit`.
    Unit,
    /// `cargo xtask test --only laboratory`: integration tests in network namespaces.
    Laboratory,
    /// `cargo xtask demo`.
    Demo,
    /// `cargo xtask bench`.
    Bench,
    /// Kubernetes clusters, and the tests on them.
    Kubernetes,
    /// `cargo xtask chart`.
    Chart,
    /// `cargo xtask image` and `cargo xtask liqoctl`.
    Image,
    /// `cargo xtask fuzz`.
    Fuzz,
}

impl Set {
    pub(crate) const ALL: &[Self] = &[
        Self::Compile,
        Self::Build,
        Self::Unit,
        Self::Laboratory,
        Self::Demo,
        Self::Bench,
        Self::Kubernetes,
        Self::Chart,
        Self::Image,
        Self::Fuzz,
    ];

    /// Returns the packages of this set and of the sets that it includes.
    pub(crate) fn packages(self) -> impl Iterator<Item = &'static Package> {
        PACKAGES.iter().filter(move |package| package.is_in(self))
    }

    fn includes(self, other: Self) -> bool {
        match other {
            Self::Compile => true,
            Self::Build => !matches!(self, Self::Compile | Self::Chart),
            Self::Unit
            | Self::Laboratory
            | Self::Demo
            | Self::Bench
            | Self::Kubernetes
            | Self::Chart
            | Self::Image
            | Self::Fuzz => self == other,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: &'static str,
    /// A program in PATH, or the absolute path of a file, that the package installs.
    pub(crate) proof: &'static str,
    sets: &'static [Set],
    /// The purpose of the package, for messages.
    pub(super) why: &'static str,
}

impl Package {
    fn is_in(&self, set: Set) -> bool {
        self.sets.iter().any(|&needing| set.includes(needing))
    }
}

/// A component of the Rust toolchain that rustup installs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Component {
    pub(super) name: &'static str,
    /// A file, relative to the toolchain's folder, that exists if the component is installed.
    pub(super) proof: &'static str,
    /// The purpose of the component, for messages.
    pub(super) why: &'static str,
}

use Set::{Bench, Build, Compile, Demo, Image, Kubernetes, Laboratory, Unit};

/// All packages of all sets.
pub(super) static PACKAGES: &[Package] = &[
    package(
        "gcc",
        "cc",
        &[Compile],
        "links Rust programs and compiles ring's C",
    ),
    package(
        "libc6-dev",
        "/usr/include/stdlib.h",
        &[Compile],
        "the C library that Rust programs are linked with",
    ),
    package(
        "g++",
        "c++",
        &[Build],
        "bpf-linker links LLVM, which is C++",
    ),
    package(
        "llvm-22-dev",
        "/usr/lib/llvm-22/bin/llvm-config",
        &[Build],
        "bpf-linker links the kernel programs with it",
    ),
    package(
        "libzstd-dev",
        "/usr/include/zstd.h",
        &[Build],
        "LLVM is linked with it",
    ),
    package(
        "zlib1g-dev",
        "/usr/include/zlib.h",
        &[Build],
        "LLVM is linked with it",
    ),
    // Debian has this package for x86 only, and the gateway uses it on x86-64 only.
    #[cfg(target_arch = "x86_64")]
    package(
        "libipsec-mb-dev",
        "/usr/include/intel-ipsec-mb.h",
        &[Build],
        "the gateway encrypts with it on CPUs with AVX-512",
    ),
    package(
        "iproute2",
        "ip",
        &[Unit, Laboratory, Demo, Bench, Kubernetes],
        "namespaces, devices and routes in the laboratories",
    ),
    package(
        "nftables",
        "nft",
        &[Unit, Laboratory, Demo, Bench, Kubernetes, Image],
        "the nodes' packet filter, the laboratories' NAT, the route agent's image",
    ),
    package(
        "iperf3",
        "iperf3",
        &[Unit, Bench, Kubernetes],
        "throughput in the bench; the image of tools",
    ),
    package(
        "tcpdump",
        "tcpdump",
        &[Unit, Demo, Kubernetes],
        "captures of packets at each hop; the image of tools",
    ),
    package(
        "conntrack",
        "conntrack",
        &[Unit, Laboratory, Kubernetes],
        "flows in tests; the laboratories' load balancers forget flows; the image of tools",
    ),
    package(
        "ethtool",
        "ethtool",
        &[Unit, Laboratory, Demo, Bench, Kubernetes],
        "offloads of the laboratories' devices; the image of tools",
    ),
    package(
        "bpftool",
        "bpftool",
        &[Bench],
        "detaches the kernel program from a TAP in the bench",
    ),
    package(
        "iputils-ping",
        "ping",
        &[Unit, Laboratory, Demo, Bench, Kubernetes],
        "reachability and round-trip times",
    ),
    package(
        "procps",
        "sysctl",
        &[Unit, Kubernetes],
        "`sysctl` and `kill` in tests of the route agent and of guests; `ps` on nodes",
    ),
    package(
        "traceroute",
        "traceroute",
        &[Laboratory],
        "hops as a user sees them",
    ),
    package(
        "wireguard-tools",
        "wg",
        &[Unit, Laboratory, Bench, Kubernetes],
        "configures wireguard-go as a peer",
    ),
    package(
        "wireguard-go",
        "wireguard-go",
        &[Unit, Laboratory, Bench, Kubernetes],
        "a WireGuard peer that is not this project's, and the bench's reference",
    ),
    package(
        "git",
        "git",
        &[Bench],
        "the commit that a result belongs to",
    ),
    package(
        "golang-go",
        "go",
        &[Bench, Kubernetes, Image],
        "fetches the Go that builds Kubernetes, helm and the bench's peers",
    ),
    package(
        "runc",
        "runc",
        &[Kubernetes],
        "runs the containers of the laboratory's clusters",
    ),
    package(
        "iptables",
        "iptables",
        &[Laboratory, Kubernetes],
        "rules of kube-proxy, and port mappings of pods",
    ),
    package(
        "busybox-static",
        "busybox",
        &[Unit, Kubernetes],
        "the image of tools",
    ),
    package("curl", "curl", &[Unit, Kubernetes], "the image of tools"),
    package(
        "bsdutils",
        "script",
        &[Kubernetes],
        "a terminal for kubectl, in tests of offloaded pods",
    ),
    package(
        "openssl",
        "openssl",
        &[Unit, Kubernetes],
        "the image of tools",
    ),
    package("socat", "socat", &[Unit, Kubernetes], "the image of tools"),
    // The server is in this package, and the package `redis-server` would start it.
    package(
        "redis-tools",
        "redis-check-rdb",
        &[Unit, Kubernetes],
        "Redis in tests of the shop, and in its image",
    ),
    // Its service is disabled in containers, where `policy-rc.d` denies services.
    package(
        "nginx",
        "nginx",
        &[Unit, Kubernetes],
        "the Ingress controller of a test",
    ),
    package(
        "netbase",
        "/etc/protocols",
        &[Unit, Kubernetes],
        "the image of tools",
    ),
];

/// The package that [`super::go`] installs when a Go program must be built for the first time, and
/// not earlier.
pub(super) const GO: &str = "golang-go";

/// Components of the Rust toolchain that every set needs.
pub(super) const COMPONENTS: &[Component] = &[
    Component {
        name: "rust-src",
        proof: "lib/rustlib/src/rust/library/core/Cargo.toml",
        why: "`core` is built for the BPF target",
    },
    Component {
        name: "rustfmt",
        proof: "bin/cargo-fmt",
        why: "`cargo xtask ci` checks the format",
    },
    Component {
        name: "clippy",
        proof: "bin/cargo-clippy",
        why: "`cargo xtask ci` runs the lints",
    },
];

const LINKER_WHY: &str = "links the kernel programs into one object";
const BPF_MOUNT_WHY: &str = "pinned programs outlive a gateway there";

#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// Whether the process runs as root, which can install packages and mount file systems.
    pub(super) root: bool,
    /// Whether `apt-get` exists.
    pub(super) apt: bool,
    /// Whether `rustup` exists.
    pub(super) rustup: bool,
    /// The major version of the Rust compiler's LLVM.
    pub(super) compiler_llvm: String,
    /// The proofs of packages and components that exist on this machine.
    pub(super) proofs: BTreeSet<&'static str>,
    /// The version of bpf-linker; `None` if bpf-linker is missing or does not run.
    pub(super) linker: Option<String>,
    /// Whether the BPF file system is mounted on [`BPF_MOUNT`].
    pub(super) bpf_mounted: bool,
}

/// The selection of packages to install.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    /// The sets whose packages must be installed.
    pub(super) sets: &'a [Set],
    /// Whether to include [`GO`], which is otherwise installed at its first use.
    pub(super) on_demand: bool,
}

impl Wanted<'_> {
    fn packages(self) -> impl Iterator<Item = &'static Package> {
        PACKAGES.iter().filter(move |package| {
            let is_needed = self.sets.iter().any(|set| package.is_in(*set));
            is_needed && (self.on_demand || package.name != GO)
        })
    }
}

/// A step of the installation plan. Steps are executed in the order of the variants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Packages(Vec<&'static Package>),
    Components(Vec<&'static Component>),
    Linker,
    MountBpf,
}

impl Step {
    /// Returns the name and the purpose of each package or tool that the step installs.
    pub(super) fn things(&self) -> Vec<(&'static str, &'static str)> {
        match self {
            Self::Packages(packages) => packages.iter().map(|p| (p.name, p.why)).collect(),
            Self::Components(components) => components.iter().map(|c| (c.name, c.why)).collect(),
            Self::Linker => vec![("bpf-linker", LINKER_WHY)],
            Self::MountBpf => vec![(BPF_MOUNT, BPF_MOUNT_WHY)],
        }
    }
}

/// Plans the installation of all packages and tools in `wanted` that are missing on the machine.
pub(super) fn missing(observed: &Observed, wanted: Wanted<'_>) -> Vec<Step> {
    let packages: Vec<_> = wanted
        .packages()
        .filter(|package| !observed.proofs.contains(package.proof))
        .collect();
    let components: Vec<_> = COMPONENTS
        .iter()
        .filter(|component| !observed.proofs.contains(component.proof))
        .collect();

    let packages = (!packages.is_empty()).then_some(Step::Packages(packages));
    let components = (!components.is_empty()).then_some(Step::Components(components));
    let linker = (observed.linker.as_deref() != Some(LINKER_VERSION)).then_some(Step::Linker);
    let mount = (!observed.bpf_mounted).then_some(Step::MountBpf);

    [packages, components, linker, mount]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns the reason and the remedy if `steps` cannot be executed on this machine. Returns `None`
/// if they can be executed.
pub(super) fn refusal(steps: &[Step], observed: &Observed) -> Option<String> {
    let llvm = &observed.compiler_llvm;
    if llvm != LLVM_VERSION {
        return Some(format!(
            "the compiler's LLVM is {llvm}, but the kernel programs are linked with LLVM {LLVM_VERSION}: use Rust 1.95 (`rustup override set 1.95`)"
        ));
    }

    steps.iter().find_map(|step| match step {
        Step::Packages(packages) => {
            let names: Vec<_> = packages.iter().map(|package| package.name).collect();
            let names = names.join(" ");
            if !observed.apt {
                Some(format!(
                    "this machine has no apt-get: install the equivalent of these Debian packages, then run this again: {names}"
                ))
            } else if !observed.root {
                Some(format!(
                    "only root may install packages: run `sudo apt-get install {names}`, or this command as root"
                ))
            } else {
                None
            }
        }
        Step::Components(_) if !observed.rustup => Some(
            "this toolchain was not installed by rustup, so its sources cannot be added: install Rust from https://rustup.rs".to_owned(),
        ),
        Step::MountBpf if !observed.root => Some(format!(
            "only root may mount: run `sudo mount -t bpf bpf {BPF_MOUNT}`, or this command as root"
        )),
        Step::Components(_) | Step::Linker | Step::MountBpf => None,
    })
}

/// Returns the error message, with the remedy, for a package that the Linux distribution `release`
/// does not provide.
pub(super) fn unavailable(package: &Package, release: &str) -> String {
    let name = package.name;
    if name == "llvm-22-dev" {
        return format!(
            "{release} has no package {name}: add the repository of https://apt.llvm.org (`wget -qO- https://apt.llvm.org/llvm.sh | bash -s 22`), then run this again"
        );
    }

    format!(
        "{release} has no package {name} ({}): install it by other means, so that {} exists",
        package.why, package.proof
    )
}

const fn package(
    name: &'static str,
    proof: &'static str,
    sets: &'static [Set],
    why: &'static str,
) -> Package {
    Package {
        name,
        proof,
        sets,
        why,
    }
}

#[cfg(test)]
mod tests;
