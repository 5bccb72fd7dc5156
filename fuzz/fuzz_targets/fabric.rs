//! Fuzzes the parser, the planner and the resolver of fabric files. A fabric file contains the
//! Kubernetes objects that configure gateways and route agents.
//!
//! The target checks that no input causes a panic, and that the parser accepts the serialized
//! objects. A second run of the planner must change nothing. The remapped prefixes of a valid
//! fabric must not overlap.

#![no_main]

use control_fabric::{Fabric, Objects, parse, plan, resolve};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(text) = std::str::from_utf8(input) {
        run(text);
    }
});

fn run(text: &str) {
    let objects = match parse(text) {
        Ok(objects) => objects,
        Err(errors) => return assert!(!errors.to_string().is_empty()),
    };
    let again = parse(&objects.to_yaml()).expect("the parser accepts a serialized file");
    assert!(again.iter().eq(objects.iter()));
    check_resolved(&objects);

    let mut planned = objects.clone();
    match plan(&mut planned) {
        Ok(()) => {
            let once = planned.clone();
            plan(&mut planned).expect("the planner accepts its own result");
            assert_eq!(planned, once);
            check(&Fabric::try_from(&planned).expect("planned objects are a valid fabric"));
            check_resolved(&planned);
        }
        Err(errors) => {
            assert!(!errors.to_string().is_empty());
            assert_eq!(planned, objects);
        }
    }
}

/// Resolves the objects as if they came from an API server: the resolver ignores incomplete and
/// invalid objects.
fn check_resolved(objects: &Objects) {
    if let Ok(fabric) = resolve(objects.clone()).fabric {
        check(&fabric);
    }
}

/// Checks that the remapped prefixes overlap neither each other nor the prefixes of this cluster.
fn check(fabric: &Fabric) {
    let remaps = fabric
        .peers
        .iter()
        .flat_map(|peer| peer.pods.iter().chain(&peer.external));
    let own = fabric.pod_cidrs.iter().chain([&fabric.external_cidr]);
    let mut nets: Vec<_> = remaps.map(ipam::Remap::to).chain(own.copied()).collect();
    nets.sort_unstable();
    for pair in nets.windows(2) {
        assert!(
            !pair[0].contains(&pair[1]),
            "{} overlaps {}",
            pair[0],
            pair[1]
        );
    }
}
