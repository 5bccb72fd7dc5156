//! Tests with programs of this machine, and with folders of unpacked packages.

use super::*;
use crate::image::scratch::Scratch;
use std::os::unix::fs::symlink;

#[test]
fn a_program_is_added_with_its_loader_and_its_libraries() {
    let mut tree = Tree::merged_usr();

    System::machine().add(&mut tree, "bash", "bash").unwrap();

    let paths: Vec<_> = tree.entries().map(|(path, _)| path).collect();
    assert!(paths.contains(&"usr/bin/bash"), "{paths:?}");
    assert!(paths.iter().any(|path| path.contains("/ld-linux")));
    assert!(paths.iter().any(|path| path.ends_with("/libc.so.6")));
}

#[test]
fn a_missing_program_is_reported_with_its_package() {
    let error = System::machine().add(&mut Tree::new(), "no-such-program", "no-such-package");

    assert_eq!(
        error.unwrap_err().to_string(),
        "no-such-program is missing: install the package that contains it (no-such-package in Debian)"
    );
}

#[test]
fn symlinks_are_resolved_within_an_unpacked_system() {
    let folder = Scratch::new();
    folder.file("usr/bin/real", fs::read("/bin/bash").unwrap(), 0o755);
    link(&folder, "usr/bin/tool", "/etc/alternatives/tool");
    link(&folder, "etc/alternatives/tool", "../../../../usr/bin/real");
    let system = System::at(&*folder);

    let found = system.program("tool").unwrap();

    assert_eq!(found, Path::new("/usr/bin/tool"));
    assert_eq!(
        system.resolve(&found),
        Some(folder.join("usr/bin/real")),
        "the symlink must not resolve to the machine's /usr/bin"
    );
}

#[test]
fn a_missing_library_of_an_unpacked_system_is_reported() {
    let folder = Scratch::new();
    folder.file("usr/bin/bash", fs::read("/bin/bash").unwrap(), 0o755);
    let system = System::at(&*folder);

    let error = system.add(&mut Tree::new(), "bash", "bash").unwrap_err();

    let text = format!("{error:#}");
    assert!(text.starts_with("bash needs lib"), "{text}");
}

fn link(folder: &Scratch, path: &str, target: &str) {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(target, path).unwrap();
}
