//! The values of the flags for reflection.

use super::Cli;
use crate::pod::forge::ApiServerSupport;
use crate::reflection::event::settings::EventSettings;
use crate::reflection::kind::Kind;
use crate::reflection::other::Other;
use crate::reflection::peering::Peering;
use crate::reflection::settings::Settings;
use crate::reflection::tokens::settings::TokenSettings;
use control_api::VirtualNode;
use control_api::offloading::policy::Policy;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};

impl Cli {
    /// Returns the values for reflection; `None` if no kind is reflected.
    ///
    /// A change of the VirtualNode's `spec.offloadingPatch` restarts the process.
    pub(super) fn reflection(&self, node: &VirtualNode) -> Option<Settings> {
        let settings = self.reflection_settings(node);
        (!settings.policies.is_empty()).then_some(settings)
    }

    /// Returns the values for the reflection of Events about pods; `None` if none are reflected.
    pub(super) fn pod_events(&self, node: &VirtualNode) -> Option<EventSettings> {
        let reflection = Settings {
            policies: BTreeMap::new(),
            ..self.reflection_settings(node)
        };
        let node = self.runs_pods().then(|| self.nodename.clone())?;

        self.events(reflection, Some(node))
    }

    /// Returns the values for the reflection of Events about reflected objects; `None` if none are reflected.
    pub(super) fn object_events(&self, node: &VirtualNode) -> Option<EventSettings> {
        self.events(self.reflection(node)?, None)
    }

    fn events(&self, reflection: Settings, node: Option<String>) -> Option<EventSettings> {
        let flags = &self.reflection;
        (flags.event_reflection_workers > 0).then_some(EventSettings {
            reflection,
            node,
            policy: flags.event_reflection_type,
        })
    }

    fn reflection_settings(&self, node: &VirtualNode) -> Settings {
        let balancers = self.remote_real_load_balancer_class_name.clone();
        let ingresses = self.remote_real_ingress_class_name.clone();
        Settings {
            peering: self.peering(node),
            tenant_namespace: self.tenant_namespace.clone(),
            policies: self.policies(),
            pod_cidrs: self.local_podcidr.iter().copied().map(IpNet::V4).collect(),
            load_balancer_class: balancers.filter(|_| self.enable_load_balancer),
            ingress_class: ingresses.filter(|_| self.enable_ingress),
        }
    }

    /// Returns the values for the tokens of pods; `None` if pods have none.
    pub(super) fn tokens(&self, node: &VirtualNode) -> Option<TokenSettings> {
        let support = self.api_server_support();
        let is_enabled = self.reflection.serviceaccount_reflection_workers > 0
            && support == ApiServerSupport::TokenApi;
        (is_enabled && self.runs_pods()).then(|| TokenSettings {
            peering: self.peering(node),
            tenant_namespace: self.tenant_namespace.clone(),
            node: self.nodename.clone(),
            api_server_support: support,
            // With an allow list, it depends on annotations.
            reflects_root_ca: self.policies().get(&Kind::ConfigMap) == Some(&Policy::DenyList),
        })
    }

    fn peering(&self, node: &VirtualNode) -> Peering {
        let patch = node.spec.offloading_patch.clone().unwrap_or_default();
        Peering {
            origin: self.home_cluster_id.clone(),
            destination: self.foreign_cluster_id.clone(),
            labels_not_reflected: patch.labels_not_reflected.into_iter().collect(),
            annotations_not_reflected: patch.annotations_not_reflected.into_iter().collect(),
        }
    }

    /// Returns the policies of the kinds that have workers.
    fn policies(&self) -> BTreeMap<Kind, Policy> {
        let flags = &self.reflection;
        let kinds = [
            (
                Kind::Service,
                flags.service_reflection_workers,
                flags.service_reflection_type,
            ),
            (
                Kind::EndpointSlice,
                flags.endpointslice_reflection_workers,
                flags.service_reflection_type,
            ),
            (
                Kind::Ingress,
                flags.ingress_reflection_workers,
                flags.ingress_reflection_type,
            ),
            (
                Kind::ConfigMap,
                flags.configmap_reflection_workers,
                flags.configmap_reflection_type,
            ),
            (
                Kind::Secret,
                flags.secret_reflection_workers,
                flags.secret_reflection_type,
            ),
        ];
        let enabled = kinds.into_iter().filter(|(_, workers, _)| *workers > 0);
        let others = flags.reflected_resource.iter().map(|it| {
            let policy = match it.is_allow_list() {
                true => Policy::AllowList,
                false => Policy::DenyList,
            };
            (Kind::Other(Other::leak(it)), policy)
        });
        enabled
            .map(|(kind, _, policy)| (kind, policy))
            .chain(others)
            .collect()
    }

    /// Returns the first resource that two flags name, maybe in different versions.
    pub(super) fn repeated_resource(&self) -> Option<String> {
        let mut known = BTreeSet::new();
        let mut names = self
            .reflection
            .reflected_resource
            .iter()
            .map(|it| it.name());
        names.find(|it| !known.insert(it.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::flags::REQUIRED;
    use clap::Parser as _;
    use serde_json::json;

    fn cli(flags: &[&str]) -> Cli {
        Cli::try_parse_from(REQUIRED.iter().chain(flags)).unwrap()
    }

    fn node() -> VirtualNode {
        let node = json!({
            "apiVersion": "offloading.liqo.io/v1beta1", "kind": "VirtualNode",
            "metadata": {"name": "milan"},
            "spec": {"clusterID": "milan", "offloadingPatch": {
                "labelsNotReflected": ["a"], "annotationsNotReflected": ["b", "c"]}},
        });
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn a_kind_without_workers_is_not_reflected() {
        let all = cli(&["--secret-reflection-type=AllowList"]);
        let policies = all.reflection(&node()).unwrap().policies;
        assert_eq!(policies.len(), Kind::ALL.len());
        assert_eq!(policies[&Kind::Secret], Policy::AllowList);
        assert_eq!(policies[&Kind::ConfigMap], Policy::DenyList);

        let one = cli(&[
            "--service-reflection-workers=0",
            "--endpointslice-reflection-workers=0",
            "--ingress-reflection-workers=0",
            "--configmap-reflection-workers=0",
        ]);
        let policies = one.reflection(&node()).unwrap().policies;
        assert_eq!(Vec::from_iter(policies.keys()), [&Kind::Secret]);

        let none = cli(&[
            "--service-reflection-workers=0",
            "--endpointslice-reflection-workers=0",
            "--ingress-reflection-workers=0",
            "--configmap-reflection-workers=0",
            "--secret-reflection-workers=0",
        ]);
        assert!(none.reflection(&node()).is_none());
    }

    #[test]
    fn further_kinds_have_a_policy_of_their_own() {
        let settings = cli(&[
            "--reflected-resource=widgets.v1.example.com:AllowList:status",
            "--reflected-resource=certificates.v1.cert-manager.io:DenyList",
        ]);
        let policies = settings.reflection(&node()).unwrap().policies;

        assert_eq!(policies.len(), Kind::ALL.len() + 2);
        let named = |name: &str| policies.iter().find(|(kind, _)| kind.to_string() == name);
        let (kind, policy) = named("widgets.example.com").unwrap();
        assert!(*policy == Policy::AllowList && kind.has_status());
        let (kind, policy) = named("certificates.cert-manager.io").unwrap();
        assert!(*policy == Policy::DenyList && !kind.has_status());
    }

    #[test]
    fn keys_of_the_virtual_node_are_not_reflected() {
        let peering = cli(&[]).reflection(&node()).unwrap().peering;

        assert_eq!(peering.labels_not_reflected, ["a".to_owned()].into());
        let expected = ["b", "c"].map(str::to_owned);
        assert_eq!(peering.annotations_not_reflected, expected.into());
    }

    #[test]
    fn pods_wait_for_tokens_only_if_they_have_some() {
        assert!(cli(&[]).tokens(&node()).is_none());
        let support = "--enable-apiserver-support";
        assert!(cli(&[support]).tokens(&node()).unwrap().reflects_root_ca);
        for flag in [
            "--configmap-reflection-workers=0",
            "--configmap-reflection-type=AllowList",
        ] {
            let tokens = cli(&[support, flag]).tokens(&node()).unwrap();
            assert!(!tokens.reflects_root_ca, "{flag}");
        }
        for flag in [
            "--serviceaccount-reflection-workers=0",
            "--pod-reflection-workers=0",
        ] {
            assert!(cli(&[support, flag]).tokens(&node()).is_none(), "{flag}");
        }
    }

    #[test]
    fn events_about_pods_and_about_objects_need_what_they_are_about() {
        let of = |flags: &[&str]| {
            let cli = cli(flags);
            let [pods, objects] = [cli.pod_events(&node()), cli.object_events(&node())];
            let node = pods.map(|it| (it.node, it.reflection.policies.len()));
            (node, objects.map(|it| it.reflection.policies.len()))
        };
        let pods = Some((Some("milan".to_owned()), 0));
        let kinds = Some(Kind::ALL.len());

        assert_eq!(of(&[]), (pods, kinds));
        assert_eq!(of(&["--pod-reflection-workers=0"]), (None, kinds));
        assert_eq!(of(&["--event-reflection-workers=0"]), (None, None));
    }

    #[test]
    fn the_classes_of_the_provider_need_their_flags() {
        let names = [
            "--remote-real-load-balancer-class-name=fast",
            "--remote-real-ingress-class-name=nginx",
        ];
        let of = |flags: &[&str]| {
            let settings = cli(&[&names[..], flags].concat()).reflection(&node());
            let settings = settings.unwrap();
            (settings.load_balancer_class, settings.ingress_class)
        };

        assert_eq!(of(&[]), (None, None));
        let balancers = of(&["--enable-load-balancer"]);
        assert_eq!(balancers, (Some("fast".to_owned()), None));
        let ingresses = of(&["--enable-ingress=true"]);
        assert_eq!(ingresses, (None, Some("nginx".to_owned())));
    }
}
