//! The rights that registrations need, as rules of RBAC.

use crate::registration::{Registration, Scope};
use k8s_openapi::api::rbac::v1::PolicyRule;
use std::collections::{BTreeMap, BTreeSet};

/// Verbs of a watch.
const WATCH: [&str; 3] = ["get", "list", "watch"];

/// Returns the rules that controllers with these registrations need, by scope: in a ClusterRole that is
/// bound in the whole cluster, in a Role in a namespace, in a role that is bound where plans add
/// watches, for example in the namespaces of tenants, or in a role that plans bind.
pub fn rules<'a>(
    registrations: impl IntoIterator<Item = &'a Registration>,
) -> BTreeMap<Scope, Vec<PolicyRule>> {
    // Verbs by scope, group, resource and name.
    let mut rights = BTreeMap::<_, BTreeSet<&str>>::new();
    for registration in registrations {
        let read_in = &registration.scope;
        let written_in = registration.write_scope.as_ref().unwrap_or(read_in);
        let resource = &registration.resource;
        let mut add = |scope: &Scope, subresource: Option<&str>, verb: &'static str| {
            let plural = match subresource {
                Some(subresource) => format!("{}/{subresource}", resource.plural),
                None => resource.plural.to_string(),
            };
            // A request to create an object has no name that a rule could restrict.
            let name = registration.selector.name.clone();
            let name = name.filter(|_| verb != "create");
            let id = (scope.clone(), resource.group.to_string(), plural, name);
            rights.entry(id).or_default().insert(verb);
        };
        for verb in WATCH {
            add(read_in, None, verb);
        }
        for verb in &registration.verbs {
            add(written_in, None, verb);
        }
        for (subresource, verb) in &registration.subresource_verbs {
            add(written_in, Some(subresource), verb);
        }
    }

    let mut rules = BTreeMap::<_, Vec<_>>::new();
    for ((scope, group, resource, name), verbs) in rights {
        rules.entry(scope).or_default().push(PolicyRule {
            api_groups: Some(vec![group]),
            resources: Some(vec![resource]),
            resource_names: name.map(|name| vec![name]),
            verbs: verbs.into_iter().map(str::to_owned).collect(),
            ..PolicyRule::default()
        });
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Node, Secret};

    fn secrets(scope: Scope) -> Registration {
        Registration::of(scope, |secret: Secret| secret)
    }

    #[test]
    fn rules_have_the_verbs_of_watch_and_writes_in_their_scope() {
        let nodes = Registration::of(Scope::All, |node: Node| node);
        let keys = secrets(Scope::Namespace("liqo".into()))
            .name("keys")
            .verbs(&["create", "patch"]);
        let rules = rules([&nodes, &keys]);

        let cluster = &rules[&Scope::All];
        assert_eq!(cluster.len(), 1);
        assert_eq!(cluster[0].resources, Some(vec!["nodes".to_owned()]));
        assert_eq!(cluster[0].verbs, ["get", "list", "watch"]);
        let local = &rules[&Scope::Namespace("liqo".into())];
        assert_eq!(local[0].verbs, ["create"]);
        assert_eq!(local[0].resource_names, None);
        assert_eq!(local[1].verbs, ["get", "list", "patch", "watch"]);
        assert_eq!(local[1].resource_names, Some(vec!["keys".to_owned()]));
    }

    #[test]
    fn subresources_are_resources_of_their_own() {
        let nodes = Registration::of(Scope::All, |node: Node| node).subresource("status", "patch");
        let rules = rules([&nodes]);

        let status = &rules[&Scope::All][1];
        assert_eq!(status.resources, Some(vec!["nodes/status".to_owned()]));
        assert_eq!(status.verbs, ["patch"]);
    }

    #[test]
    fn verbs_of_writes_have_a_scope_of_their_own() {
        let keys = secrets(Scope::All)
            .verbs(&["patch"])
            .written_in(Scope::Planned);
        let rules = rules([&keys]);

        assert_eq!(rules[&Scope::All][0].verbs, ["get", "list", "watch"]);
        assert_eq!(rules[&Scope::Planned][0].verbs, ["patch"]);
    }
}
