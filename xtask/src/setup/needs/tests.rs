use super::*;

#[test]
fn a_complete_machine_needs_nothing() {
    let steps = missing(&complete(), EVERYTHING);

    assert_eq!(steps, []);
}

#[test]
fn packages_are_installed_before_the_tools_that_need_them() {
    let steps = missing(&Observed::default(), EVERYTHING);

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

    assert_eq!(missing(&observed, EVERYTHING), [Step::Linker]);
}

#[test]
fn only_missing_packages_are_installed() {
    let observed = without("bpftool");

    let things: Vec<_> = missing(&observed, EVERYTHING)
        .iter()
        .flat_map(Step::things)
        .map(|(name, _)| name)
        .collect();

    assert_eq!(things, ["bpftool"]);
}

#[test]
fn only_the_packages_of_the_wanted_sets_are_installed() {
    let observed = Observed {
        proofs: without_packages(),
        ..complete()
    };

    let steps = missing(&observed, wanted(&[Set::Demo]));

    let [Step::Packages(packages)] = &steps[..] else {
        panic!("{steps:?}");
    };
    let names: BTreeSet<_> = packages.iter().map(|package| package.name).collect();
    assert!(names.contains("gcc") && names.contains("llvm-22-dev") && names.contains("tcpdump"));
    assert!(!names.contains("runc") && !names.contains("wireguard-go"));
}

#[test]
fn go_is_installed_when_it_is_first_used_unless_everything_is_wanted() {
    let observed = without("go");

    assert_eq!(missing(&observed, wanted(&[Set::Kubernetes])), []);
    assert_eq!(missing(&observed, EVERYTHING).len(), 1);
}

#[test]
fn every_package_has_a_set_and_every_set_has_a_compiler() {
    for package in PACKAGES {
        assert!(!package.sets.is_empty(), "{}", package.name);
    }
    for set in Set::ALL {
        assert!(
            set.packages().any(|package| package.name == "gcc"),
            "{set:?}"
        );
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn every_set_that_builds_the_gateway_has_the_library_of_its_cipher() {
    let builds = |set: &Set| !matches!(set, Set::Compile | Set::Chart);
    for set in Set::ALL.iter().copied().filter(builds) {
        let mut packages = set.packages();
        assert!(
            packages.any(|package| package.name == "libipsec-mb-dev"),
            "{set:?}"
        );
    }
}

#[test]
fn without_root_the_remedy_is_named() {
    let observed = Observed {
        root: false,
        ..without("nft")
    };

    let refusal = refusal(&missing(&observed, EVERYTHING), &observed).unwrap();

    assert!(refusal.contains("sudo apt-get install nftables"));
}

#[test]
fn without_root_a_complete_machine_is_no_problem() {
    let observed = Observed {
        root: false,
        ..complete()
    };

    assert_eq!(refusal(&missing(&observed, EVERYTHING), &observed), None);
}

#[test]
fn without_apt_the_packages_are_named() {
    let observed = Observed {
        apt: false,
        ..without("tcpdump")
    };

    let refusal = refusal(&missing(&observed, EVERYTHING), &observed).unwrap();

    assert!(refusal.contains("no apt-get") && refusal.ends_with("tcpdump"));
}

#[test]
fn a_compiler_of_another_llvm_is_refused_before_anything_is_installed() {
    let observed = Observed {
        compiler_llvm: "23".into(),
        ..complete()
    };

    let refusal = refusal(&missing(&observed, EVERYTHING), &observed).unwrap();

    assert!(refusal.contains("LLVM is 23") && refusal.contains("rustup override"));
}

#[test]
fn a_release_without_llvm_gets_the_address_of_its_repository() {
    let llvm = PACKAGES
        .iter()
        .find(|package| package.name == "llvm-22-dev")
        .unwrap();

    let message = unavailable(llvm, "Ubuntu 22.04");

    assert!(message.starts_with("Ubuntu 22.04 has no package llvm-22-dev"));
    assert!(message.contains("apt.llvm.org"));
}

const EVERYTHING: Wanted<'_> = Wanted {
    sets: Set::ALL,
    on_demand: true,
};

fn wanted(sets: &[Set]) -> Wanted<'_> {
    Wanted {
        sets,
        on_demand: false,
    }
}

fn complete() -> Observed {
    let packages = PACKAGES.iter().map(|package| package.proof);

    Observed {
        root: true,
        apt: true,
        rustup: true,
        compiler_llvm: LLVM_VERSION.into(),
        proofs: packages.chain(without_packages()).collect(),
        linker: Some(LINKER_VERSION.into()),
        bpf_mounted: true,
    }
}

fn without(proof: &str) -> Observed {
    let mut observed = complete();
    assert!(observed.proofs.remove(proof));

    observed
}

fn without_packages() -> BTreeSet<&'static str> {
    COMPONENTS.iter().map(|component| component.proof).collect()
}
