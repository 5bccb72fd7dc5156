//! Fabric files, and the objects in them, through parser, planner and resolver.
//!
//! Rules: no panic; what is written is read again; planning decides once; nothing overlaps.

#![no_main]

use control_api::fabric::{Fabric, Objects, admit, parse, plan};

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
    let again = parse(&objects.to_yaml()).expect("what is written is read again");
    assert!(again.iter().eq(objects.iter()));
    resolve(&objects);

    let mut planned = objects.clone();
    match plan(&mut planned) {
        Ok(()) => {
            let once = planned.clone();
            plan(&mut planned).expect("a plan that was accepted is accepted again");
            assert_eq!(planned, once);
            check(&Fabric::try_from(&planned).expect("a plan is a fabric"));
            resolve(&planned);
        }
        Err(errors) => {
            assert!(!errors.to_string().is_empty());
            assert_eq!(planned, objects);
        }
    }
}

/// Takes the objects as an API server's: the incomplete and the wrong are left out.
fn resolve(objects: &Objects) {
    if let Ok(fabric) = admit(objects.clone()).fabric {
        check(&fabric);
    }
}

/// Checks that each remapped prefix leads to one peer, and none to this cluster.
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
