//! The incremental resolution equals that of all objects, over random changes.

use super::*;
use crate::generate;
use crate::resolve::LastGood;
use control_api::{Network, labels};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn the_incremental_resolution_equals_that_of_all_objects(
        batches in prop::collection::vec(generate::changes(), 1..60)
    ) {
        let mut resolver = Resolver::new("liqo", &["developers".to_owned()]);
        let mut all = All::default();
        let mut partial = 0;
        let first = [generate::cluster()].into_iter();
        for changes in first.chain(batches) {
            all.apply(&changes);
            partial += usize::from(!resolver.is_global);
            let incremental = resolver.apply(changes).clone();

            let (complete, tenants) = all.resolve();
            prop_assert_eq!(&incremental, &complete);
            prop_assert_eq!(&*resolver.tenants, &tenants);
        }
        prop_assert!(partial > 0);
    }
}

/// Number of random sequences; one sequence takes about 10 ms.
const CASES: u32 = 300;

/// All objects, and the last good Configurations.
#[derive(Default)]
struct All {
    objects: BTreeMap<ObjectKey, Object>,
    namespaces: BTreeMap<String, ObjectMeta>,
    blocks: BTreeMap<String, Blocks>,
    last_good: LastGood,
}

impl All {
    fn apply(&mut self, changes: &Changes) {
        for (key, object) in &changes.objects {
            let object = object.as_deref().cloned();
            set(&mut self.objects, key, object);
        }
        for (name, namespace) in &changes.namespaces {
            set(&mut self.namespaces, name, namespace.clone());
        }
        for (name, blocks) in &changes.blocks {
            set(&mut self.blocks, name, blocks.clone());
        }
    }

    /// Resolves all objects, without any state but the last good Configurations.
    fn resolve(&mut self) -> (Resolution, BTreeMap<String, String>) {
        let tenancy = Tenancy {
            liqo: "liqo".to_owned(),
            named: vec!["developers".to_owned()],
            labelled: self.namespaces.values().cloned().collect(),
        };
        let mut objects = Objects::default();
        objects.extend(self.objects.values().cloned());
        let tenants = tenancy.tenant_namespaces(&objects);
        let misplaced = tenancy.prune(&mut objects);
        self.assign_blocks(&mut objects);
        let mut resolution = self.last_good.resolve(objects);
        resolution.refuse(misplaced);

        (resolution, tenants)
    }

    fn assign_blocks(&self, objects: &mut Objects) {
        let pods = objects.iter().filter(|object| {
            matches!(object, Object::Network(_))
                && object.label_value(labels::NETWORK_TYPE) == Some(labels::NETWORK_TYPE_POD)
        });
        let pods = pods.filter_map(|object| <&Network>::try_from(object).ok());
        let pods = pods.filter_map(|network| network.spec.cidr.parse().ok());
        let pods: Vec<_> = pods.collect();
        let of_nodes = blocks::assign(&pods, self.blocks.values());
        for object in objects.iter_mut().filter(|_| !of_nodes.is_empty()) {
            if let Object::Node(node) = object {
                let name = node.metadata.name.clone().unwrap();
                let spec = node.spec.get_or_insert_default();
                spec.pod_cidr = None;
                spec.pod_cidrs = Some(of_nodes.get(&name).cloned().unwrap_or_default());
            }
        }
    }
}

fn set<K: Ord + Clone, V>(map: &mut BTreeMap<K, V>, key: &K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key.clone(), value),
        None => map.remove(key),
    };
}
