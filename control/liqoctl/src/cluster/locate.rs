//! Finds the installation of Liqo in a cluster.

use k8s_openapi::api::core::v1::ConfigMap;

/// Key of the cluster ID in its ConfigMap.
const CLUSTER_ID: &str = "CLUSTER_ID";

/// An installation of Liqo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Installation {
    /// ID of the cluster.
    pub(crate) cluster_id: String,
    /// Liqo's namespace.
    pub(crate) namespace: String,
}

/// Returns the installation, given the ConfigMaps that contain a cluster ID. `requested` is the
/// namespace that a flag names.
///
/// # Errors
///
/// Returns the correct namespace if `requested` is another one, or the candidates if there are several.
pub(crate) fn choose(
    found: &[ConfigMap],
    requested: Option<&str>,
) -> Result<Option<Installation>, String> {
    let namespaces: Vec<&str> = found.iter().map(namespace).collect();
    let chosen = match (found, requested) {
        ([], _) => return Ok(None),
        (_, Some(requested)) => found
            .iter()
            .find(|map| namespace(map) == requested)
            .ok_or_else(|| {
                let right = namespaces.join(" or ");
                format!("Liqo is not in namespace {requested} but in {right}: name that one with --liqo-namespace (--remote-liqo-namespace for the remote cluster)")
            })?,
        ([only], None) => only,
        (_, None) => {
            let all = namespaces.join(", ");
            return Err(format!(
                "Liqo's cluster ID was found in several namespaces ({all}): name one with --liqo-namespace (--remote-liqo-namespace for the remote cluster)"
            ));
        }
    };
    let id = chosen.data.as_ref().and_then(|data| data.get(CLUSTER_ID));
    match id.filter(|id| !id.is_empty()) {
        Some(id) => Ok(Some(Installation {
            cluster_id: id.clone(),
            namespace: namespace(chosen).to_owned(),
        })),
        None => Err(format!(
            "ConfigMap {}/{} has no {CLUSTER_ID}: install again with --cluster-id",
            namespace(chosen),
            chosen.metadata.name.as_deref().unwrap_or_default(),
        )),
    }
}

fn namespace(map: &ConfigMap) -> &str {
    map.metadata.namespace.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(namespace: &str, id: &str) -> ConfigMap {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "liqo-clusterid-configmap", "namespace": namespace},
            "data": {"CLUSTER_ID": id},
        }))
        .unwrap()
    }

    #[test]
    fn a_single_installation_is_found_in_any_namespace() {
        let found = choose(&[map("liqo-system", "rome")], None);

        let expected = Installation {
            cluster_id: "rome".into(),
            namespace: "liqo-system".into(),
        };
        assert_eq!(found, Ok(Some(expected)));
    }

    #[test]
    fn the_error_for_a_wrong_flag_names_the_correct_namespace() {
        let error = choose(&[map("liqo-system", "rome")], Some("liqo")).unwrap_err();

        assert!(error.contains("not in namespace liqo but in liqo-system"));
    }

    #[test]
    fn several_installations_need_a_flag() {
        let maps = [map("a", "rome"), map("b", "milan")];

        assert!(choose(&maps, None).unwrap_err().contains("(a, b)"));
        assert_eq!(
            choose(&maps, Some("b")).unwrap().unwrap().cluster_id,
            "milan"
        );
    }

    #[test]
    fn no_installation_is_no_error() {
        assert_eq!(choose(&[], Some("liqo")), Ok(None));
    }

    #[test]
    fn an_empty_id_is_an_error() {
        assert!(choose(&[map("liqo", "")], None).is_err());
    }
}
