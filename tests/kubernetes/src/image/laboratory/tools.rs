//! The image of network tools, which contains full programs and the applets of busybox.

use crate::image::Tree;
use crate::image::programs::System;
use anyhow::{Context as _, Result, bail};
use std::path::Path;
use std::process::Command;

/// A program of this machine that an image contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// The file name of the program.
    pub name: &'static str,
    /// The Debian package that contains the program.
    pub package: &'static str,
    /// The purpose of the program, for the list of required packages.
    pub why: &'static str,
}

/// The programs of the image except guest programs. They must be installed on the machine.
pub const TOOLS: &[Program] = &[
    BUSYBOX,
    program("bash", "bash", "the shell of the image of tools"),
    program("ip", "iproute2", "devices, addresses and routes"),
    program(
        "bridge",
        "iproute2",
        "forwarding databases of VXLAN devices",
    ),
    program(
        "tc",
        "iproute2",
        "queues and the kernel programs at devices",
    ),
    program("ss", "iproute2", "sockets"),
    program("nft", "nftables", "packet filters, as a pod can set them"),
    program("curl", "curl", "requests over HTTP from pods"),
    program("iperf3", "iperf3", "throughput between pods"),
    program("ethtool", "ethtool", "offloads of a pod's devices"),
    program("conntrack", "conntrack", "flows that a node tracks"),
    program("socat", "socat", "UDP and TCP between pods"),
    program("nsenter", "util-linux", "a node's namespaces from a pod"),
    program("tcpdump", "tcpdump", "captures of packets in pods"),
    program("openssl", "openssl", "certificates, as servers show them"),
];

const BUSYBOX: Program = program(
    "busybox",
    "busybox-static",
    "all common programs of the image of tools in one",
);

/// Files of the machine: path in the image, path on the machine, and Debian package.
const FILES: [(&str, &str, &str); 3] = [
    ("/etc/protocols", "/etc/protocols", "netbase"),
    ("/etc/services", "/etc/services", "netbase"),
    // Debian's openssl reads the first path, which is a symlink on the machine.
    (
        "/usr/lib/ssl/openssl.cnf",
        "/etc/ssl/openssl.cnf",
        "openssl",
    ),
];

/// The users of the image. tcpdump changes from root to its own user, and fails if this user does
/// not exist.
pub(super) const PASSWD: &str = "\
root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/:/bin/false
tcpdump:x:100:100::/:/bin/false
";
pub(super) const GROUP: &str = "root:x:0:\nnobody:x:65534:\ntcpdump:x:100:\n";
const NSSWITCH: &str = "\
passwd: files
group: files
hosts: files dns
protocols: files
services: files
";

/// Returns the tree of all files in the image.
pub(super) fn tree(guest: &Path) -> Result<Tree> {
    let mut tree = Tree::merged_usr();
    let machine = System::machine();
    for program in TOOLS {
        machine.add(&mut tree, program.name, program.package)?;
    }
    tree.file("/usr/bin/whoami", &guest.join("whoami"))?;

    for (path, source, package) in FILES {
        tree.file(path, Path::new(source))
            .with_context(|| format!("install Debian's package {package}"))?;
    }
    tree.bytes("/etc/passwd", PASSWD)?;
    tree.bytes("/etc/group", GROUP)?;
    tree.bytes("/etc/nsswitch.conf", NSSWITCH)?;
    for folder in ["/root", "/run", "/var"] {
        tree.directory(folder, 0o755)?;
    }

    // The shell is bash. Debian's busybox shell would prefer applets over programs in `PATH`, such
    // as its limited `ip`.
    tree.symlink("/usr/bin/sh", "bash")?;
    for applet in applets()? {
        let is_real = ["/usr/bin", "/usr/sbin"]
            .iter()
            .any(|folder| tree.contains(&format!("{folder}/{applet}")));
        if !is_real {
            tree.symlink(&format!("/usr/bin/{applet}"), "busybox")?;
        }
    }

    Ok(tree)
}

/// Returns the names of busybox's applets.
fn applets() -> Result<Vec<String>> {
    let output = Command::new(BUSYBOX.name)
        .arg("--list")
        .output()
        .context("failed to list the applets of busybox")?;
    if !output.status.success() {
        bail!("`busybox --list` failed: {}", output.status);
    }
    let list = String::from_utf8(output.stdout).context("an applet's name is no text")?;

    Ok(list.lines().map(str::to_owned).collect())
}

const fn program(name: &'static str, package: &'static str, why: &'static str) -> Program {
    Program { name, package, why }
}
