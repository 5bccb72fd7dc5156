//! All rights of the issued credentials, as the API server reports them.

use super::scene::Scene;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authorization::v1::{
    SelfSubjectRulesReview, SelfSubjectRulesReviewSpec, SubjectRulesReviewStatus,
};
use kube::api::PostParams;
use kube::{Api, Client};
use kubernetes_lab::pki::Subject;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::{env, fs};

/// The file with the expected rights.
const GOLDEN: &str = "rules.txt";

/// If this variable is set, the golden file is written instead of compared.
const UPDATE: &str = "LIQO_LAB_UPDATE";

const NAMESPACES: [&str; 7] = [
    "default",
    "books-rome",
    "books-turin",
    "kube-system",
    "liqo",
    "liqo-tenant-rome",
    "liqo-tenant-turin",
];

/// A resource with the verbs that are allowed.
type Rules = BTreeMap<String, BTreeSet<String>>;

/// Compares all rights of all issued credentials in all namespaces with the golden file.
pub(super) async fn check(scene: &Scene) -> Result<()> {
    let user = "no-one";
    let subject = Subject { user, group: None };
    let anyone = scene.milan.control_plane().client_as(subject).await?;
    let mut text =
        String::from("# Rights of issued credentials. LIQO_LAB_UPDATE=1 writes this file.\n");
    for namespace in NAMESPACES {
        let common = rules(&anyone, namespace).await?;
        if namespace == NAMESPACES[0] {
            section(&mut text, "every user, in each namespace", &common)?;
        }
        for (name, client) in [
            ("control plane of a consumer", &scene.consumer),
            ("ResourceSlice of a consumer", &scene.slice),
            ("peering user", &scene.peering_user),
        ] {
            let mut own = rules(client, namespace).await?;
            for (resource, verbs) in &common {
                let found = own.entry(resource.clone()).or_default();
                ensure!(found.is_superset(verbs), "{name} lacks {resource}");
                *found = &*found - verbs;
            }
            own.retain(|_, verbs| !verbs.is_empty());
            section(
                &mut text,
                &format!("{name}, in namespace {namespace}"),
                &own,
            )?;
        }
    }
    if env::var_os(UPDATE).is_some() {
        return fs::write(format!("{}/{GOLDEN}", super::FOLDER), text)
            .context("failed to write the golden file");
    }
    let golden = super::read(GOLDEN)?;
    let differing = text
        .lines()
        .zip(golden.lines())
        .find(|(found, expected)| found != expected);

    ensure!(
        text == golden,
        "{GOLDEN} differs, first in {differing:?}; `LIQO_LAB_UPDATE=1` writes it. Now:\n{text}"
    );
    Ok(())
}

fn section(text: &mut String, title: &str, rules: &Rules) -> Result<()> {
    writeln!(text, "\n{title}:")?;
    if rules.is_empty() {
        writeln!(text, "    none")?;
    }
    for (resource, verbs) in rules {
        let verbs = Vec::from_iter(verbs.iter().map(String::as_str));
        writeln!(text, "    {resource}: {}", verbs.join(" "))?;
    }

    Ok(())
}

/// Returns the rules of a client in a namespace.
async fn rules(client: &Client, namespace: &str) -> Result<Rules> {
    let reviews: Api<SelfSubjectRulesReview> = Api::all(client.clone());
    let review = SelfSubjectRulesReview {
        spec: SelfSubjectRulesReviewSpec {
            namespace: Some(namespace.to_owned()),
        },
        ..SelfSubjectRulesReview::default()
    };
    let review = reviews.create(&PostParams::default(), &review).await?;
    let SubjectRulesReviewStatus {
        incomplete,
        non_resource_rules,
        resource_rules,
        ..
    } = review.status.context("no rules")?;
    ensure!(!incomplete, "the rules are incomplete");

    let mut rules = Rules::new();
    for rule in resource_rules {
        let names = rule.resource_names.filter(|names| !names.is_empty());
        let names = names.unwrap_or_else(|| vec![String::new()]);
        for group in rule.api_groups.unwrap_or_default() {
            for resource in rule.resources.iter().flatten() {
                for name in &names {
                    let group = if group.is_empty() { "core" } else { &group };
                    let name = if name.is_empty() {
                        String::new()
                    } else {
                        format!(" {name}")
                    };
                    let found = rules
                        .entry(format!("{group}/{resource}{name}"))
                        .or_default();
                    found.extend(rule.verbs.iter().cloned());
                }
            }
        }
    }
    for rule in non_resource_rules {
        for path in rule.non_resource_urls.unwrap_or_default() {
            rules
                .entry(path)
                .or_default()
                .extend(rule.verbs.iter().cloned());
        }
    }

    Ok(rules)
}
