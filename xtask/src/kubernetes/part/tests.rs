use super::*;
use crate::kubernetes::release;
use crate::workspace;
use std::collections::BTreeSet;

#[test]
fn every_input_changes_the_digest() {
    let before = digests(|_, text| text);

    for (file, part) in [
        ("kubernetes/v1.35.mod", 0),
        ("kubernetes/v1.35.sum", 0),
        ("kubernetes/main.go", 0),
        ("tools/go.mod", 1),
        ("tools/go.sum", 1),
        ("tools/coredns/main.go", 1),
        ("localpath/go.sum", 2),
        ("kwok/go.sum", 3),
        ("metrics-server/go.sum", 4),
    ] {
        let after = digests(|name, text| match name == file {
            true => text + "\n",
            false => text,
        });

        for index in 0..before.len() {
            let changed = before[index] != after[index];
            assert_eq!(changed, index == part, "{file} and part {index}");
        }
    }
}

#[test]
fn the_version_is_built_into_kubernetes() {
    let parts = of_this_checkout();

    let arguments = parts[0].arguments.join(" ");

    assert!(arguments.contains("-modfile=v1.35.mod"));
    for expected in [
        " -X=k8s.io/component-base/version.gitVersion=v1.35.4 ",
        " -X=k8s.io/component-base/version.gitMinor=35 ",
        " -X=k8s.io/client-go/pkg/version.gitVersion=v1.35.4 ",
    ] {
        assert!(arguments.contains(expected), "{arguments}");
    }
}

#[test]
fn a_quick_build_leaves_out_what_only_long_tests_use() {
    let parts = of_this_checkout();

    let left_out: Vec<_> = parts.iter().filter(|it| !it.is_essential()).collect();
    let names: Vec<_> = left_out.iter().map(|it| it.name.as_str()).collect();

    assert_eq!(names, ["kwok", "metrics-server"]);
}

#[test]
fn each_program_has_a_version_and_its_own_path() {
    let parts = of_this_checkout();

    let places: Vec<_> = parts
        .iter()
        .flat_map(|part| part.programs)
        .map(|program| program.place)
        .collect();
    let versions: BTreeMap<_, _> = parts.iter().flat_map(|part| &part.versions).collect();

    assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), places.len());
    assert_eq!(versions[&"kubelet"], "v1.35.4");
    assert_eq!(versions[&"kube"], "v1.35.4");
    for name in [
        "containerd",
        "ctr",
        "etcd",
        "helm",
        "coredns",
        "ptp",
        "kwok",
        "metrics-server",
    ] {
        assert!(versions[&name].starts_with('v'), "{name}");
    }
}

#[test]
fn changed_parts_change_the_folder_of_all() {
    let before = folder_of_all("v1.35.4", &of_this_checkout());

    let after = folder_of_all("v1.35.4", &parts(|_, text| text + "\n"));

    assert!(before.starts_with("v1.35.4-") && after.starts_with("v1.35.4-"));
    assert_ne!(before, after);
}

#[test]
fn helm_is_a_separate_part_for_each_processor() {
    let modules = workspace::root().join("tests/kubernetes/go");
    let [amd64, arm64] =
        [Processor::Amd64, Processor::Arm64].map(|processor| helm(processor, &modules).unwrap());

    // The folder names differ even without their digests. Otherwise, a build for one processor
    // would remove the folder of the other processor as superseded.
    assert!(amd64.folder().starts_with("helm-amd64-"));
    assert!(arm64.folder().starts_with("helm-arm64-"));
    assert_ne!(amd64.digest, arm64.digest);
    let tools = &of_this_checkout()[1];
    assert_eq!(amd64.versions["helm"], tools.versions["helm"]);
    assert!(amd64.arguments.iter().any(|it| it.ends_with("/cmd/helm")));
}

fn digests(change: impl Fn(&str, String) -> String) -> Vec<String> {
    parts(change).into_iter().map(|part| part.digest).collect()
}

/// Returns the parts of the release that the tests use, with the versions that this checkout pins.
pub(in crate::kubernetes) fn of_this_checkout() -> Vec<Part> {
    parts(|_, text| text)
}

/// Returns the parts of this checkout after `change` was applied to the content of each file.
fn parts(change: impl Fn(&str, String) -> String) -> Vec<Part> {
    let modules = workspace::root().join("tests/kubernetes/go");
    let release = release::choose("1.35", release::known(&modules).unwrap()).unwrap();

    recipe::all(&release)
        .into_iter()
        .map(|recipe| {
            let folder = modules.join(recipe.folder);
            let part = Part::new(recipe, folder, None, |file| {
                let name = file.strip_prefix(&modules)?.to_string_lossy();
                Ok(change(&name, fs::read_to_string(file)?))
            });
            part.unwrap()
        })
        .collect()
}
