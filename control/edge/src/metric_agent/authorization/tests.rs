use super::*;

type Check = fn(&Decision) -> bool;

fn requester(user: &str, groups: &[&str]) -> Requester {
    Requester {
        user: user.to_owned(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..Requester::default()
    }
}

#[test]
fn each_identity_reads_what_its_kind_may_read() {
    let peers = BTreeSet::from(["rome", "milan"]);
    let allow = |it: &Decision| *it == Decision::Allow;
    let forbid = |it: &Decision| *it == Decision::Forbid;
    let review = |it: &Decision| matches!(it, Decision::Review(_));
    let every = "system:authenticated";
    let cases: [(&str, &[&str], Check); 11] = [
        ("shop-a8a4c692b93b", &["rome", every], allow),
        ("shop-a8a4c692b93b", &["milan", "rome"], allow),
        ("shop-0123456789ab", &["milan", every], forbid),
        // The user of a control plane is the cluster ID; only groups count.
        ("rome", &["liqo.io", every], forbid),
        ("milan", &["liqo.io", every], forbid),
        ("liqo-peer-user-rome-0", &["liqo.io"], forbid),
        ("milan", &[], forbid),
        ("milan", &["system:masters"], forbid),
        ("kubernetes-admin", &["system:masters", every], review),
        (
            "system:serviceaccount:monitoring:prometheus",
            &["system:serviceaccounts"],
            review,
        ),
        // A former consumer has no namespace, and is not distinguishable. It lacks `scrape/all`.
        ("shop-a", &["turin"], review),
    ];
    for (user, groups, is_expected) in cases {
        let decision = decide(&requester(user, groups), "rome", &peers);
        assert!(is_expected(&decision), "{user} {groups:?}: {decision:?}");
    }
}

#[test]
fn the_right_of_a_review_is_none_that_the_chart_gives_to_consumers() {
    let roles = include_str!("../../../../../charts/liqo/templates/authentication/roles.yaml");
    let decision = decide(&requester("admin", &[]), "rome", &BTreeSet::new());
    let Decision::Review(review) = decision else {
        panic!("{decision:?}");
    };

    let attributes = review.spec.resource_attributes.unwrap();
    let right = format!(
        "{}/{}",
        attributes.resource.unwrap(),
        attributes.subresource.unwrap()
    );
    assert_eq!(right, "scrape/all");
    assert!(
        roles.contains("scrape/metrics"),
        "the consumers' right has moved"
    );
    assert!(!roles.contains(&right) && !roles.contains("scrape/*"));
}
