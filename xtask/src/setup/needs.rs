//! What is needed and why, and what follows from what was observed.

use std::collections::BTreeSet;

/// The release of bpf-linker that the kernel object is built with.
pub(super) const LINKER_VERSION: &str = "0.13.0";

/// The LLVM that bpf-linker is linked with; it reads nothing of a later one.
const LLVM_VERSION: &str = "22";

/// Where Debian keeps the LLVM that matches the compiler's.
pub(super) const LLVM: &str = "/usr/lib/llvm-22";

/// Where the kernel's pinned programs and maps live.
pub(super) const BPF_MOUNT: &str = "/sys/fs/bpf";

/// One thing from the system's packages.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Package {
    /// Debian's name of it.
    pub(super) name: &'static str,
    /// A program in PATH, or the absolute path of a file, that shows it is there.
    pub(super) proof: &'static str,
    /// What it is for.
    pub(super) why: &'static str,
}

/// One part of the Rust toolchain.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Component {
    /// rustup's name of it.
    pub(super) name: &'static str,
    /// A file below the toolchain's folder that shows it is there.
    pub(super) proof: &'static str,
    /// What it is for.
    pub(super) why: &'static str,
}

/// The system's packages.
pub(super) const PACKAGES: &[Package] = &[
    package("build-essential", "cc", "links Rust programs"),
    package("pkg-config", "pkg-config", "finds libraries in builds"),
    package(
        "llvm-22-dev",
        "/usr/lib/llvm-22/bin/llvm-config",
        "bpf-linker links the kernel programs with it",
    ),
    package(
        "libzstd-dev",
        "/usr/include/zstd.h",
        "LLVM is linked with it",
    ),
    package(
        "zlib1g-dev",
        "/usr/include/zlib.h",
        "LLVM is linked with it",
    ),
    package(
        "iproute2",
        "ip",
        "namespaces, devices and routes in the laboratory",
    ),
    package(
        "nftables",
        "nft",
        "the nodes' packet filter and the laboratory's NAT",
    ),
    package("iperf3", "iperf3", "throughput in the demo and the bench"),
    package("tcpdump", "tcpdump", "captures of packets at each hop"),
    package(
        "conntrack",
        "conntrack",
        "the laboratory's load balancers forget flows",
    ),
    package("ethtool", "ethtool", "offloads of the laboratory's devices"),
    package(
        "bpftool",
        "bpftool",
        "takes the kernel program off a TAP in the bench",
    ),
    package("iputils-ping", "ping", "reachability and round-trip times"),
    package("traceroute", "traceroute", "hops as a user sees them"),
    package("wireguard-tools", "wg", "configures wireguard-go as a peer"),
    package(
        "wireguard-go",
        "wireguard-go",
        "a peer that is not ours, and the bench's yardstick",
    ),
];

/// What clusters of real Kubernetes need beside [`PACKAGES`]; most of it is in the image
/// of tools, too.
pub(super) const CLUSTER_PACKAGES: &[Package] = &[
    package(
        "runc",
        "runc",
        "runs the containers of the laboratory's clusters",
    ),
    package(
        "iptables",
        "iptables",
        "kube-proxy and port mappings of pods",
    ),
    package("bash", "bash", "the shell of the image of tools"),
    package("busybox-static", "busybox", "the image of tools"),
    package("curl", "curl", "the image of tools"),
    package("openssl", "openssl", "the image of tools"),
    package("socat", "socat", "the image of tools"),
    package("netbase", "/etc/protocols", "the image of tools"),
];

/// Parts of the Rust toolchain.
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
        why: "`cargo xtask ci` checks the lints",
    },
];

const LINKER_WHY: &str = "turns the kernel programs into one object";
const BPF_MOUNT_WHY: &str = "pinned programs outlive a gateway there";

/// What a look at the machine showed.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// May install packages and mount.
    pub(super) root: bool,
    /// `apt-get` exists.
    pub(super) apt: bool,
    /// `rustup` exists.
    pub(super) rustup: bool,
    /// The major version of the compiler's LLVM.
    pub(super) compiler_llvm: String,
    /// Proofs that were found, of packages and components.
    pub(super) proofs: BTreeSet<&'static str>,
    /// The version that bpf-linker tells, if it runs.
    pub(super) linker: Option<String>,
    /// The BPF file system is mounted.
    pub(super) bpf_mounted: bool,
    /// Clusters of real Kubernetes are wanted.
    pub(super) clusters: bool,
}

/// Something to do, in the order in which it must be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Install packages.
    Packages(Vec<&'static Package>),
    /// Install parts of the toolchain.
    Components(Vec<&'static Component>),
    /// Build and install bpf-linker.
    Linker,
    /// Mount the BPF file system.
    MountBpf,
}

impl Step {
    /// What the step brings, and what for.
    pub(super) fn things(&self) -> Vec<(&'static str, &'static str)> {
        match self {
            Self::Packages(packages) => packages.iter().map(|p| (p.name, p.why)).collect(),
            Self::Components(components) => components.iter().map(|c| (c.name, c.why)).collect(),
            Self::Linker => vec![("bpf-linker", LINKER_WHY)],
            Self::MountBpf => vec![(BPF_MOUNT, BPF_MOUNT_WHY)],
        }
    }
}

/// Decides what has to be done.
pub(super) fn missing(observed: &Observed) -> Vec<Step> {
    let clusters = if observed.clusters {
        CLUSTER_PACKAGES
    } else {
        &[]
    };
    let packages: Vec<_> = PACKAGES
        .iter()
        .chain(clusters)
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

/// Says why `steps` cannot be done here, or would be of no use, and what a person
/// can do about it.
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

/// Says what to do if the system's release does not have `package`.
pub(super) fn unavailable(package: &Package, release: &str) -> String {
    let name = package.name;
    if name == "llvm-22-dev" {
        return format!(
            "{release} has no package {name}: add the repository of https://apt.llvm.org (`wget -qO- https://apt.llvm.org/llvm.sh | bash -s 22`), then run this again"
        );
    }

    format!(
        "{release} has no package {name} ({}): install it by other means, so that {} is found",
        package.why, package.proof
    )
}

const fn package(name: &'static str, proof: &'static str, why: &'static str) -> Package {
    Package { name, proof, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_machine_needs_nothing() {
        let steps = missing(&complete());

        assert_eq!(steps, []);
    }

    #[test]
    fn a_bare_machine_gets_packages_before_what_is_built_with_them() {
        let steps = missing(&Observed::default());

        let [
            Step::Packages(packages),
            Step::Components(components),
            Step::Linker,
            Step::MountBpf,
        ] = &steps[..]
        else {
            panic!("{steps:?}");
        };
        assert_eq!(packages.len(), PACKAGES.len());
        assert_eq!(components.len(), COMPONENTS.len());
    }

    #[test]
    fn another_release_of_the_linker_is_replaced() {
        let observed = Observed {
            linker: Some("0.9.14".into()),
            ..complete()
        };

        assert_eq!(missing(&observed), [Step::Linker]);
    }

    #[test]
    fn only_what_is_missing_is_installed() {
        let mut observed = complete();
        observed.proofs.remove("iperf3");

        let things: Vec<_> = missing(&observed).iter().flat_map(Step::things).collect();

        assert_eq!(things, [("iperf3", "throughput in the demo and the bench")]);
    }

    #[test]
    fn what_clusters_need_is_installed_only_for_them() {
        let observed = Observed {
            clusters: true,
            ..complete()
        };

        let steps = missing(&observed);

        let [Step::Packages(packages)] = &steps[..] else {
            panic!("{steps:?}");
        };
        assert_eq!(packages.len(), CLUSTER_PACKAGES.len());
    }

    #[test]
    fn without_root_the_cure_is_named() {
        let mut observed = Observed {
            root: false,
            ..complete()
        };
        observed.proofs.remove("nft");

        let refusal = refusal(&missing(&observed), &observed).unwrap();

        assert!(refusal.contains("sudo apt-get install nftables"));
    }

    #[test]
    fn without_root_a_complete_machine_is_no_problem() {
        let observed = Observed {
            root: false,
            ..complete()
        };

        assert_eq!(refusal(&missing(&observed), &observed), None);
    }

    #[test]
    fn a_system_without_apt_is_told_the_packages() {
        let mut observed = Observed {
            apt: false,
            ..complete()
        };
        observed.proofs.remove("tcpdump");

        let refusal = refusal(&missing(&observed), &observed).unwrap();

        assert!(refusal.contains("no apt-get") && refusal.ends_with("tcpdump"));
    }

    #[test]
    fn a_compiler_of_another_llvm_is_refused_before_anything_is_installed() {
        let observed = Observed {
            compiler_llvm: "23".into(),
            ..complete()
        };

        let refusal = refusal(&missing(&observed), &observed).unwrap();

        assert!(refusal.contains("LLVM is 23") && refusal.contains("rustup override"));
    }

    #[test]
    fn a_release_without_llvm_is_told_where_it_comes_from() {
        let llvm = PACKAGES
            .iter()
            .find(|package| package.name == "llvm-22-dev")
            .unwrap();

        let sentence = unavailable(llvm, "Ubuntu 22.04");

        assert!(sentence.starts_with("Ubuntu 22.04 has no package llvm-22-dev"));
        assert!(sentence.contains("apt.llvm.org"));
    }

    fn complete() -> Observed {
        let packages = PACKAGES.iter().map(|package| package.proof);
        let components = COMPONENTS.iter().map(|component| component.proof);

        Observed {
            root: true,
            apt: true,
            rustup: true,
            compiler_llvm: LLVM_VERSION.into(),
            proofs: packages.chain(components).collect(),
            linker: Some(LINKER_VERSION.into()),
            bpf_mounted: true,
            clusters: false,
        }
    }
}
