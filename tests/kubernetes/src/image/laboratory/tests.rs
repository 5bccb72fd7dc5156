//! Tests with fake programs in place of built ones, and with the tools of this machine.

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
            "localhost/shop:latest",
            "registry.k8s.io/metrics-server/metrics-server:v0.5.6",
        ]
    );
    assert_eq!(written[0].archive, to.join("pause.tar"));
    assert!(written.iter().all(|it| it.archive.is_file()));
}

#[test]
fn the_image_of_a_program_that_a_quick_build_leaves_out_is_not_written() {
    let folder = artifacts();
    let versions = r#"{"coredns": "v1.2.3", "local-path-provisioner": "v0.0.4"}"#;
    folder.file(VERSIONS, versions, 0o644);
    let to = folder.join("images");

    let written = laboratory_images(&folder, &folder.join("guest"), &to).unwrap();

    assert_eq!(written.len(), 5);
    assert!(!to.join("metrics-server.tar").exists());
}

#[test]
fn programs_take_precedence_over_applets_of_the_same_name() {
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
fn the_image_of_the_shop_contains_redis_under_its_own_name() {
    let folder = artifacts();

    let tree = shop::tree(&folder.join("guest")).unwrap();

    let mut entries = tree.entries();
    let server = entries.find(|(path, _)| *path == "usr/bin/redis-server");
    assert_eq!(
        server.unwrap().1.to_string(),
        "a symlink to redis-check-rdb"
    );
    assert!(tree.contains("/usr/bin/redis-check-rdb") && tree.contains("/usr/bin/shop"));
}

#[test]
fn the_image_of_tools_is_reproducible() {
    let folder = artifacts();
    let bytes = |name: &str| {
        let to = folder.join(name);
        laboratory_images(&folder, &folder.join("guest"), &to).unwrap();
        fs::read(to.join("tools.tar")).unwrap()
    };

    // `assert_eq` would print the complete archives.
    assert!(bytes("first") == bytes("second"));
}

#[test]
fn the_error_for_missing_programs_names_the_command_that_builds_them() {
    let folder = artifacts();
    fs::remove_file(folder.join(VERSIONS)).unwrap();

    let error = laboratory_images(&folder, &folder, &folder.join("images")).unwrap_err();

    assert!(
        error
            .to_string()
            .contains("cargo xtask kubernetes-binaries")
    );
}

/// Creates fake programs in place of artifacts and guest programs.
fn artifacts() -> Scratch {
    let folder = Scratch::new();
    for program in [
        "coredns",
        "kubectl",
        "local-path-provisioner",
        "metrics-server",
    ] {
        folder.file(&format!("bin/{program}"), program, 0o755);
    }
    for program in ["guest/pause", "guest/shop", "guest/whoami"] {
        folder.file(program, program, 0o755);
    }
    let versions =
        r#"{"coredns": "v1.2.3", "local-path-provisioner": "v0.0.4", "metrics-server": "v0.5.6"}"#;
    folder.file(VERSIONS, versions, 0o644);

    folder
}

#[test]
fn the_image_of_the_ingress_controller_contains_nginx_and_the_applets_of_its_script() {
    let folder = artifacts();

    let written = ingress_image(&folder, &folder.join("images")).unwrap();
    let tree = ingress::tree(&folder).unwrap();

    assert_eq!(written.names, [INGRESS]);
    assert!(written.archive.is_file());
    for path in ["/usr/sbin/nginx", "/usr/bin/kubectl", "/usr/bin/busybox"] {
        assert!(tree.contains(path), "{path}");
    }
    let mut entries = tree.entries();
    let shell = entries.find(|(path, _)| *path == "usr/bin/sh");
    assert_eq!(shell.unwrap().1.to_string(), "a symlink to busybox");
}
