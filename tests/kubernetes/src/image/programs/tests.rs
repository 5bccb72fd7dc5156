//! Against this machine, and against folders that look like one.

use super::*;
use crate::image::scratch::Scratch;
use std::os::unix::fs::symlink;

#[test]
fn a_program_brings_its_loader_and_its_libraries() {
    let mut tree = Tree::merged_usr();

    System::machine().add(&mut tree, "bash", "bash").unwrap();

    let paths: Vec<_> = tree.entries().map(|(path, _)| path).collect();
    assert!(paths.contains(&"usr/bin/bash"), "{paths:?}");
    assert!(paths.iter().any(|path| path.contains("/ld-linux")));
    assert!(paths.iter().any(|path| path.ends_with("/libc.so.6")));
}

#[test]
fn a_missing_program_is_told_with_its_package() {
    let error = System::machine().add(&mut Tree::new(), "no-such-program", "no-such-package");

    assert_eq!(
        error.unwrap_err().to_string(),
        "no-such-program is missing: install Debian's package no-such-package, or what has no-such-program"
    );
}

#[test]
fn links_of_an_unpacked_system_stay_in_it() {
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
        "the machine has a /usr/bin too, but it is another system's"
    );
}

#[test]
fn an_unpacked_system_without_the_libraries_is_told_which() {
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
