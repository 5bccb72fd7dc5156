//! The image of the laboratory's Ingress controller: nginx, and kubectl, which renders its configuration.

use super::tools::{GROUP, PASSWD};
use crate::image::Tree;
use crate::image::programs::System;
use anyhow::Result;
use std::path::Path;

/// Applets of busybox that the controller needs.
const APPLETS: [&str; 5] = ["sh", "awk", "cmp", "mv", "sleep"];

/// Folders that nginx writes to.
const FOLDERS: [&str; 4] = ["/run", "/tmp", "/var/lib/nginx", "/var/log/nginx"];

/// Returns the tree of all files in the image. The artifacts contain kubectl, which is static.
pub(super) fn tree(artifacts: &Path) -> Result<Tree> {
    let mut tree = Tree::merged_usr();
    let machine = System::machine();
    machine.add(&mut tree, "busybox", "busybox-static")?;
    machine.add(&mut tree, "nginx", "nginx")?;
    tree.file("/usr/bin/kubectl", &artifacts.join("bin/kubectl"))?;
    for applet in APPLETS {
        tree.symlink(&format!("/usr/bin/{applet}"), "busybox")?;
    }
    tree.bytes("/etc/passwd", PASSWD)?;
    tree.bytes("/etc/group", GROUP)?;
    for folder in FOLDERS {
        tree.directory(folder, 0o1777)?;
    }

    Ok(tree)
}
