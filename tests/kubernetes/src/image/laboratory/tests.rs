//! With stand-ins for what is built elsewhere, and this machine's own tools.

use super::*;
use crate::image::scratch::Scratch;
use std::collections::BTreeSet;

#[test]
fn all_images_are_written_with_the_versions_of_their_programs() {
    let folder = artifacts();
    let to = folder.join("images");

    let written = laboratory_images(&folder, &folder.join("guest"), &to).unwrap();

    let names: Vec<_> = written.iter().map(|it| it.names[0].as_str()).collect();
    assert_eq!(
        names,
        [
            "registry.k8s.io/pause:3.10",
            "registry.k8s.io/coredns/coredns:v1.2.3",
            "docker.io/rancher/local-path-provisioner:v0.0.4",
            "docker.io/library/busybox:1.36",
        ]
    );
    assert_eq!(written[0].archive, to.join("pause.tar"));
    assert!(written.iter().all(|it| it.archive.is_file()));
}

#[test]
fn real_programs_come_before_applets_of_the_same_name() {
    let folder = artifacts();

    let tree = tools::tree(&folder.join("guest")).unwrap();

    let shown: BTreeSet<_> = tree
        .entries()
        .map(|(path, entry)| format!("{path} is {entry}"))
        .collect();
    let busybox = |name: &str| shown.contains(&format!("usr/bin/{name} is a symlink to busybox"));
    assert!(busybox("ping") && busybox("ls"));
    assert!(!busybox("ip") && !busybox("tc") && !busybox("whoami") && !busybox("sh"));
    assert!(shown.contains("usr/bin/sh is a symlink to bash"));
    assert!(tree.contains("/sbin/ip") && tree.contains("/usr/sbin/nft"));
}

#[test]
fn the_image_of_tools_is_the_same_twice() {
    let folder = artifacts();
    let bytes = |name: &str| {
        let to = folder.join(name);
        laboratory_images(&folder, &folder.join("guest"), &to).unwrap();
        fs::read(to.join("tools.tar")).unwrap()
    };

    // Not by `assert_eq`, which would print the archives.
    assert!(bytes("first") == bytes("second"));
}

#[test]
fn programs_that_were_not_built_are_told_how() {
    let folder = artifacts();
    fs::remove_file(folder.join(VERSIONS)).unwrap();

    let error = laboratory_images(&folder, &folder, &folder.join("images")).unwrap_err();

    assert!(
        error
            .to_string()
            .contains("cargo xtask kubernetes-binaries")
    );
}

/// Stand-ins for artifacts and guest.
fn artifacts() -> Scratch {
    let folder = Scratch::new();
    for program in ["bin/coredns", "bin/local-path-provisioner"] {
        folder.file(program, program, 0o755);
    }
    for program in ["guest/pause", "guest/whoami"] {
        folder.file(program, program, 0o755);
    }
    let versions = r#"{"coredns": "v1.2.3", "local-path-provisioner": "v0.0.4"}"#;
    folder.file(VERSIONS, versions, 0o644);

    folder
}
